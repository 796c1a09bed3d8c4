#include "tersum/status.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tersum {
namespace {

const std::vector<StatusCode> kFailures = {
    StatusCode::kInvalidArgument, StatusCode::kUnsupported, StatusCode::kDisagreement,
    StatusCode::kPeerLost,        StatusCode::kTimeout,     StatusCode::kAborted,
    StatusCode::kClosed,          StatusCode::kProtocol,    StatusCode::kVersionMismatch,
    StatusCode::kUnavailable,     StatusCode::kSystem,      StatusCode::kInternal,
};

TEST(StatusTest, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_FALSE(status.is_retryable());
}

TEST(StatusTest, FailureKeepsCodeAndSentence) {
  const Status status(StatusCode::kPeerLost, "rank 3 closed its connection; make a new group");
  const Status copy = status;
  EXPECT_FALSE(copy.ok());
  EXPECT_EQ(copy.code(), StatusCode::kPeerLost);
  EXPECT_EQ(copy.to_string(), "peer_lost: rank 3 closed its connection; make a new group");
}

TEST(StatusTest, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names = {status_code_name(StatusCode::kOk)};
  for (const StatusCode code : kFailures) {
    EXPECT_NE(status_code_name(code), "unknown");
    EXPECT_TRUE(names.insert(status_code_name(code)).second) << status_code_name(code);
  }
  EXPECT_EQ(status_code_name(static_cast<StatusCode>(99)), "unknown");
}

TEST(StatusTest, OnlyTheTwentiesAreRetryable) {
  const std::set<StatusCode> retryable = {StatusCode::kPeerLost, StatusCode::kTimeout,
                                          StatusCode::kAborted, StatusCode::kClosed};
  for (const StatusCode code : kFailures) {
    EXPECT_EQ(Status(code, "why").is_retryable(), retryable.contains(code))
        << status_code_name(code);
  }
}

TEST(StatusDeathTest, OkWithAMessageIsAProgrammerError) {
  EXPECT_DEATH(Status(StatusCode::kOk, "all is well"), "check failed");
}

Status fail_if(bool fail, int* reached) {
  TERSUM_RETURN_IF_ERROR(fail ? invalid_argument("count is negative") : ok_status());
  ++*reached;
  return ok_status();
}

TEST(StatusTest, ReturnIfErrorReturnsOnlyErrors) {
  int reached = 0;
  EXPECT_TRUE(fail_if(false, &reached).ok());
  EXPECT_EQ(reached, 1);
  EXPECT_EQ(fail_if(true, &reached).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reached, 1);
}

TEST(ResultTest, HoldsAValueOrTheReasonForItsAbsence) {
  Result<std::string> value(std::string("seven"));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, "seven");
  EXPECT_EQ(value->size(), 5u);
  EXPECT_EQ(std::move(value).value(), "seven");

  const Result<std::string> failed(unsupported("int3 is not built in"));
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kUnsupported);
}

TEST(ResultTest, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 7);
}

}  // namespace
}  // namespace tersum

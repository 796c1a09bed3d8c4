// The part of Communicator that keeps what +flatten has learned.
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "runtime/communicator_impl.h"
#include "runtime/flatten_sites.h"
#include "runtime/group_id.h"

namespace tersum {

Status CommunicatorImpl::between_calls(const std::function<Status(FlattenSites&)>& task) {
  if (settling_.load() > 0) return learning_in_flight();
  Status status;
  progress_->execute([&](Node& /*node*/) { status = task(member_->flatten); });
  return status;
}

Result<std::vector<std::byte>> CommunicatorImpl::save_flatten() {
  const std::lock_guard lock(choice_mutex_);
  Result<std::vector<std::byte>> saved = std::vector<std::byte>();
  TERSUM_RETURN_IF_ERROR(between_calls([&](FlattenSites& sites) {
    saved = sites.save();
    return saved.status();
  }));
  return saved;
}

// A sample that was taken before a change would, learned behind it, allow codecs that flatten by
// factors that are no longer there. So none is under way while it is made: those that have begun
// are refused for, and others, whose calls need choice_mutex_ to begin, come behind it. A call that
// has started by then is in the engine's inbox before the change, which finds it in flight.
Status CommunicatorImpl::change_flatten(const std::function<Status(FlattenSites&)>& change) {
  const std::lock_guard lock(choice_mutex_);
  TERSUM_RETURN_IF_ERROR(between_calls(change));
  samples_.forget_channels();
  return {};
}

Status CommunicatorImpl::load_flatten(std::span<const std::byte> saved) {
  return change_flatten([&](FlattenSites& sites) { return sites.load(saved); });
}

Status CommunicatorImpl::replace_flatten(std::span<const std::byte> saved) {
  return change_flatten([&](FlattenSites& sites) {
    const Status emptied = sites.reset(std::nullopt);
    return emptied.ok() ? sites.load(saved) : emptied;
  });
}

Status CommunicatorImpl::reset_flatten(std::optional<uint64_t> site) {
  return change_flatten([&](FlattenSites& sites) { return sites.reset(site); });
}

Result<std::vector<std::byte>> Communicator::save_flatten() const {
  return impl_ ? impl_->save_flatten() : no_communicator();
}

Status Communicator::load_flatten(std::span<const std::byte> saved) {
  return impl_ ? impl_->load_flatten(saved) : no_communicator();
}

Status Communicator::share_flatten(int root, int64_t timeout_ms) {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  CallOptions exact;
  exact.timeout_ms = timeout_ms;
  Result<std::vector<std::byte>> saved = std::vector<std::byte>();
  if (rank() == root) saved = save_flatten();
  std::array<std::byte, sizeof(uint64_t)> size{};
  store_le(size.data(), saved.ok() ? uint64_t{saved->size()} : kNone);
  TERSUM_RETURN_IF_ERROR(broadcast(size.data(), size.size(), DataType::kUint8, root, exact));
  const auto bytes = load_le<uint64_t>(size.data());
  if (!saved.ok()) return saved.status();
  if (bytes == kNone) {
    return {StatusCode::kInvalidArgument,
            "rank " + std::to_string(root) +
                " cannot share what it has learned: a call that learns is in flight there; wait "
                "for it first"};
  }
  saved->resize(bytes);
  TERSUM_RETURN_IF_ERROR(broadcast(saved->data(), bytes, DataType::kUint8, root, exact));
  // The root, too, so that all ranks have been given the same between the same calls.
  return impl_->replace_flatten(*saved);
}

Status Communicator::reset_flatten(std::optional<std::string_view> site) {
  if (!impl_) return no_communicator();
  if (!site.has_value()) return impl_->reset_flatten(std::nullopt);
  return impl_->reset_flatten(text_digest(*site));
}

}  // namespace tersum

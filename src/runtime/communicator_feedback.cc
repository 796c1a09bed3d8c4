// The part of Communicator that keeps what +feedback owes.
#include <span>
#include <vector>

#include "runtime/communicator_impl.h"
#include "runtime/feedback_sites.h"

namespace tersum {

Result<std::vector<std::byte>> CommunicatorImpl::save_feedback() {
  Result<std::vector<std::byte>> saved = std::vector<std::byte>();
  progress_->execute([&](Node& /*node*/) { saved = member_->feedback.save(); });
  return saved;
}

Status CommunicatorImpl::load_feedback(std::span<const std::byte> saved) {
  Status status;
  progress_->execute([&](Node& /*node*/) { status = member_->feedback.load(saved); });
  return status;
}

Status CommunicatorImpl::reset_feedback() {
  Status status;
  progress_->execute([&](Node& /*node*/) { status = member_->feedback.reset(); });
  return status;
}

Result<std::vector<std::byte>> Communicator::save_feedback() const {
  return impl_ ? impl_->save_feedback() : no_communicator();
}

Status Communicator::load_feedback(std::span<const std::byte> saved) {
  return impl_ ? impl_->load_feedback(saved) : no_communicator();
}

Status Communicator::reset_feedback() {
  return impl_ ? impl_->reset_feedback() : no_communicator();
}

}  // namespace tersum

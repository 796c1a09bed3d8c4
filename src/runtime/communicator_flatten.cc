// The part of Communicator that keeps what +flatten has learned.
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/communicator_impl.h"
#include "runtime/flatten_sites.h"
#include "runtime/group_id.h"

namespace tersum {

Result<std::vector<std::byte>> CommunicatorImpl::save_flatten() {
  Result<std::vector<std::byte>> saved = std::vector<std::byte>();
  progress_->execute([&](Node& /*node*/) { saved = member_->flatten.save(); });
  return saved;
}

Status CommunicatorImpl::load_flatten(std::span<const std::byte> saved) {
  Status status;
  progress_->execute([&](Node& /*node*/) { status = member_->flatten.load(saved); });
  return status;
}

Status CommunicatorImpl::reset_flatten(std::optional<uint64_t> site) {
  Status status;
  progress_->execute([&](Node& /*node*/) { status = member_->flatten.reset(site); });
  return status;
}

Result<std::vector<std::byte>> Communicator::save_flatten() const {
  return impl_ ? impl_->save_flatten() : no_communicator();
}

Status Communicator::load_flatten(std::span<const std::byte> saved) {
  return impl_ ? impl_->load_flatten(saved) : no_communicator();
}

Status Communicator::reset_flatten(std::optional<std::string_view> site) {
  if (!impl_) return no_communicator();
  if (!site.has_value()) return impl_->reset_flatten(std::nullopt);
  return impl_->reset_flatten(text_digest(*site));
}

}  // namespace tersum

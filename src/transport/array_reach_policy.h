// ArrayReachPolicy: whether processes of one host touch each other's arrays (array_reach.h).
#pragma once

namespace tersum {

enum class ArrayReachPolicy {
  kAuto,   // as far as the system lets them
  kOff,    // never
  kAllow,  // this process also asks Yama to let any process of its user do so
};

}  // namespace tersum

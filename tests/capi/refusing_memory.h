// SPDX-License-Identifier: Apache-2.0
// Memory that runs out when a test says so: the operator new of this program, which stands before
// that of the C++ library, for the library under test, too.
#ifndef TESTS_CAPI_REFUSING_MEMORY_H_
#define TESTS_CAPI_REFUSING_MEMORY_H_

#include <atomic>

namespace refusing {

// The allocations that still succeed; below 0: all do.
extern std::atomic<long> left;
extern std::atomic<bool> once;        // the one that is refused is the last that is
extern std::atomic<bool> unexpected;  // what is thrown then is no std::bad_alloc
extern std::atomic<bool> refused;     // set by each refusal
extern std::atomic<long> live;        // allocations that were not given back yet
extern thread_local bool exempt;      // those of this thread are neither counted nor refused

}  // namespace refusing

#endif  // TESTS_CAPI_REFUSING_MEMORY_H_

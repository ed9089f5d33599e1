// SPDX-License-Identifier: Apache-2.0
#include "capi/static_text.h"

#include <set>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"

namespace dsv4::capi {

const char* StaticText(const std::string& text) {
  static Mutex mutex;
  static std::set<std::string> texts ABSL_GUARDED_BY(mutex);
  const MutexLock lock(&mutex);
  return texts.insert(text).first->c_str();
}

}  // namespace dsv4::capi

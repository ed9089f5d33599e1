// SPDX-License-Identifier: Apache-2.0
// The one include of Catch2: its path differs between version 2 (Debian 12) and version 3.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

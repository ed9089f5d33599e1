// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"os"
	"strings"
	"testing"
)

// The listing is the one that a C program prints, whose path DSV4_ABI_LISTING gives
// (tests/bindings/go_test.sh).
func TestListingIsThatOfTheCCompiler(t *testing.T) {
	path := os.Getenv("DSV4_ABI_LISTING")
	if path == "" {
		t.Skip("needs DSV4_ABI_LISTING")
	}
	expected, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mine, its := strings.Split(Listing(), "\n"), strings.Split(string(expected), "\n")
	if len(mine) != len(its) || len(mine) < 200 {
		t.Fatalf("%d lines, not %d", len(mine), len(its))
	}
	for i := range mine {
		if mine[i] != its[i] {
			t.Errorf("%s, not %s", mine[i], its[i])
		}
	}
}

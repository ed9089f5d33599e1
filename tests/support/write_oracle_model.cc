// SPDX-License-Identifier: Apache-2.0
// usage: write_oracle_model CASE.json FOLDER
// Writes the checkpoint of an oracle case: for tests that see the library from outside alone and
// need a model that is not the bundled one.
#include <cstdio>

#include "tools/verify/oracle_case.h"
#include "tools/verify/oracle_checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_oracle_model CASE.json FOLDER\n");
    return 2;
  }
  const absl::StatusOr<dsv4::OracleCase> oracle = dsv4::LoadOracleCase(argv[1]);
  const absl::Status written =
      oracle.ok() ? dsv4::WriteOracleCheckpoint(*oracle, argv[2]) : oracle.status();
  if (written.ok()) return 0;
  std::fprintf(stderr, "write_oracle_model: %s\n", written.ToString().c_str());
  return 1;
}

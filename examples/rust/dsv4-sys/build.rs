// SPDX-License-Identifier: Apache-2.0
//! Finds libdsv4: asks pkg-config, then takes the folder DSV4_LIB_DIR.

use std::env;
use std::process::Command;

/// The words of `pkg-config --libs dsv4`, or why there are none.
fn ask_pkg_config() -> Result<Vec<String>, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    let output = Command::new(&program)
        .args(["--libs", "dsv4"])
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().map(str::to_string).collect())
}

fn main() {
    for name in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "DSV4_LIB_DIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    match ask_pkg_config() {
        Ok(words) => {
            for word in words {
                if let Some(folder) = word.strip_prefix("-L") {
                    println!("cargo:rustc-link-search=native={folder}");
                } else if let Some(library) = word.strip_prefix("-l") {
                    println!("cargo:rustc-link-lib={library}");
                }
            }
            // pkg-config leaves out the system's own folders, which the linker knows.
        }
        Err(reason) => match env::var("DSV4_LIB_DIR") {
            Ok(folder) => {
                println!("cargo:rustc-link-search=native={folder}");
                println!("cargo:rustc-link-lib=dsv4");
            }
            Err(_) => panic!(
                "libdsv4 was not found: install it, or name the folder of its dsv4.pc in \
                 PKG_CONFIG_PATH, or its own in DSV4_LIB_DIR. pkg-config said: {reason}"
            ),
        },
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Structs, constants and functions as rustc sees them, against the listing that a C program prints:
//! DSV4_ABI_LISTING is its path (tests/bindings/rust_test.sh).

use dsv4_sys::*;
use std::fmt::Write;
use std::mem::{align_of, size_of, MaybeUninit};

fn size_of_target<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! listing {
    ($($name:ident { $($field:ident),* })* ; $($constant:ident)* ; $($function:ident)*) => {{
        let mut out = String::new();
        $(
            let value = MaybeUninit::<$name>::uninit();
            let base = value.as_ptr();
            let (size, align) = (size_of::<$name>(), align_of::<$name>());
            writeln!(out, "struct {} {} {}", stringify!($name), size, align).unwrap();
            $(
                // Safety: an address within `value`; nothing is read.
                let field = unsafe { std::ptr::addr_of!((*base).$field) };
                let offset = field as usize - base as usize;
                let name = stringify!($field).trim_start_matches("r#");
                let size = size_of_target(field);
                writeln!(out, "field {}.{} {} {}", stringify!($name), name, offset, size).unwrap();
            )*
        )*
        $(writeln!(out, "constant {} {}", stringify!($constant), $constant).unwrap();)*
        $(
            // Naming it makes the linker find it.
            assert_ne!($function as *const () as usize, 0);
            writeln!(out, "function {}", stringify!($function)).unwrap();
        )*
        out
    }};
}

#[test]
#[ignore = "needs DSV4_ABI_LISTING"]
fn layouts_constants_and_functions_are_those_of_the_c_compiler() {
    let path = std::env::var_os("DSV4_ABI_LISTING").expect("DSV4_ABI_LISTING");
    let expected = std::fs::read_to_string(path).unwrap();
    let listing = include!("table.rs");
    let (mine, its): (Vec<_>, Vec<_>) = (listing.lines().collect(), expected.lines().collect());
    for (mine, its) in mine.iter().zip(&its) {
        assert_eq!(mine, its);
    }
    assert_eq!(mine.len(), its.len());
    assert!(mine.len() > 200);
}

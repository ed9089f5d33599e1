// SPDX-License-Identifier: Apache-2.0
//! The C interface of libdsv4 as it is. Contracts stand in its headers, `<dsv4/dsv4.h>`; the crate
//! `dsv4` puts a safe interface over this one.
//!
//! A struct's `default()` is the `_INIT` macro of its header: its own size, and 0 everywhere else.

#![allow(non_camel_case_types)]

macro_rules! sized {
    ($name:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // Safety: numbers, pointers and optional functions, for which 0 is a value.
                let mut value: Self = unsafe { std::mem::zeroed() };
                value.struct_size = std::mem::size_of::<Self>() as u32;
                value
            }
        }
    };
}

#[rustfmt::skip]
mod bindings;
pub use bindings::*;

// SPDX-License-Identifier: Apache-2.0
//! Copies of what the library reports in its structs.

use crate::error::{check, Result};
use crate::memory;
use dsv4_sys as sys;
use std::os::raw::c_char;

pub(crate) trait FromC<T> {
    /// Safety: a pointer must be to a NUL-terminated text.
    unsafe fn from_c(value: T) -> Self;
}

/// What `call` fills. Safety: as [`FromC::from_c`] of it.
pub(crate) unsafe fn filled<C: Default, T: FromC<C>>(
    call: impl FnOnce(*mut C, *mut *mut sys::dsv4_error) -> sys::dsv4_status,
) -> Result<T> {
    let mut value = C::default();
    check(|error| call(&mut value, error))?;
    Ok(T::from_c(value))
}

macro_rules! same_in_c {
    ($($name:ty)*) => {$(
        impl FromC<$name> for $name {
            unsafe fn from_c(value: $name) -> $name {
                value
            }
        }
    )*};
}
same_in_c!(i32 i64 u64 f64);

impl FromC<i32> for bool {
    unsafe fn from_c(value: i32) -> bool {
        value != 0
    }
}

impl FromC<*const c_char> for String {
    unsafe fn from_c(text: *const c_char) -> String {
        memory::string(text)
    }
}

macro_rules! mirrors {
    ($($(#[$doc:meta])* $name:ident of $c_name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl FromC<sys::$c_name> for $name {
            unsafe fn from_c(value: sys::$c_name) -> $name {
                $name { $($field: <$type>::from_c(value.$field),)* }
            }
        }
    )*};
}

pub(crate) use mirrors;

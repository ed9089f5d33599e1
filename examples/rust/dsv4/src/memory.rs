// SPDX-License-Identifier: Apache-2.0
//! Pointers and lengths to Rust's own types, and back.

use crate::error::{check, Error, Result};
use dsv4_sys as sys;
use std::ffi::{CStr, CString, OsStr};
use std::os::raw::c_char;
use std::path::Path;

/// NULL for nothing, as the structs of C have it.
pub(crate) fn pointer<T>(values: &[T]) -> *const T {
    if values.is_empty() {
        std::ptr::null()
    } else {
        values.as_ptr()
    }
}

pub(crate) fn text_pointer(text: &str) -> *const c_char {
    pointer(text.as_bytes()).cast()
}

/// Safety: `data` is NULL with no `count`, or points to that many values that live as long as 'a.
pub(crate) unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

/// Safety: as [`slice`]. The library's texts are UTF-8; others would not be unsound.
pub(crate) unsafe fn counted_string(text: *const c_char, length: u64) -> String {
    String::from_utf8_lossy(slice(text.cast::<u8>(), length as usize)).into_owned()
}

/// Safety: NULL or NUL-terminated.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// Safety: NUL-terminated and never freed.
pub(crate) unsafe fn static_str(text: *const c_char) -> &'static str {
    CStr::from_ptr(text).to_str().unwrap_or("")
}

pub(crate) fn c_string(argument: &str, text: &[u8]) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(argument, format!("{argument} holds a NUL byte")))
}

/// As the library takes it: any bytes on Unix, UTF-8 on Windows.
#[cfg(unix)]
fn os_string(argument: &str, text: &OsStr) -> Result<CString> {
    c_string(argument, std::os::unix::ffi::OsStrExt::as_bytes(text))
}

#[cfg(not(unix))]
fn os_string(argument: &str, text: &OsStr) -> Result<CString> {
    match text.to_str() {
        Some(text) => c_string(argument, text.as_bytes()),
        None => Err(Error::invalid(argument, format!("{argument} is not valid Unicode"))),
    }
}

/// `None` for no text; [`text_of`] makes it NULL.
pub(crate) fn c_option(argument: &str, text: Option<impl AsRef<OsStr>>) -> Result<Option<CString>> {
    text.map(|text| os_string(argument, text.as_ref())).transpose()
}

pub(crate) fn text_of(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    os_string("path", path.as_os_str())
}

/// A result of unknown length: asks with room for `guess` values, and again with what is needed.
pub(crate) fn fill<T: Clone + Default>(
    guess: usize,
    call: impl Fn(*mut T, usize, *mut usize, *mut *mut sys::dsv4_error) -> sys::dsv4_status,
) -> Result<Vec<T>> {
    let mut values = vec![T::default(); guess];
    loop {
        let mut needed = 0;
        check(|error| call(values.as_mut_ptr(), values.len(), &mut needed, error))?;
        if needed <= values.len() {
            values.truncate(needed);
            return Ok(values);
        }
        values.resize(needed, T::default());
    }
}

/// [`fill`] for text.
pub(crate) fn fill_string(
    guess: usize,
    call: impl Fn(*mut c_char, usize, *mut usize, *mut *mut sys::dsv4_error) -> sys::dsv4_status,
) -> Result<String> {
    let bytes = fill::<u8>(guess, |data, capacity, needed, error| {
        call(data.cast(), capacity, needed, error)
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

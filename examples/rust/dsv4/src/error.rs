// SPDX-License-Identifier: Apache-2.0
//! Status and owned error of C as a `Result`.

use crate::callback;
use crate::codes::Code;
use crate::memory;
use dsv4_sys as sys;
use std::fmt;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    argument: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn code(&self) -> Code {
        self.code
    }

    /// One line that names the file, key, tensor, argument or value at fault.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The C name of the argument that was refused; empty where none is at fault, or none alone.
    pub fn argument(&self) -> &str {
        &self.argument
    }

    pub(crate) fn invalid(argument: &str, message: String) -> Error {
        Error { code: Code::INVALID_ARGUMENT, message, argument: argument.to_string() }
    }

    pub(crate) fn full(message: &str) -> Error {
        let argument = String::new();
        Error { code: Code::OUT_OF_BLOCKS, message: message.to_string(), argument }
    }

    /// Safety: `error` is NULL or owned by the caller, who gives it up.
    pub(crate) unsafe fn take(status: sys::dsv4_status, error: *mut sys::dsv4_error) -> Error {
        let message = memory::string(sys::dsv4_error_get_message(error));
        let argument = memory::string(sys::dsv4_error_get_argument(error));
        sys::dsv4_error_free(error);
        Error { code: Code(status), message, argument }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Safety: static storage.
        let name = unsafe { memory::static_str(sys::dsv4_status_get_name(self.code.0)) };
        write!(f, "{}: {}", name, self.message)
    }
}

impl std::error::Error for Error {}

/// Makes a call of C. A panic that a callback had meanwhile continues here.
pub(crate) fn check(
    call: impl FnOnce(*mut *mut sys::dsv4_error) -> sys::dsv4_status,
) -> Result<()> {
    let mut error = std::ptr::null_mut();
    let status = call(&mut error);
    let result = match status {
        sys::DSV4_OK => Ok(()),
        // Safety: the call has set `error`, which is ours.
        _ => Err(unsafe { Error::take(status, error) }),
    };
    callback::resume_panic();
    result
}

/// Refuses a library of another ABI: nothing else of it may be called.
pub(crate) fn check_abi() -> Result<()> {
    // Safety: no arguments.
    let its = unsafe { sys::dsv4_get_abi_version() };
    if its == sys::DSV4_ABI_VERSION {
        return Ok(());
    }
    Err(Error {
        code: Code::VERSION_MISMATCH,
        message: format!("libdsv4 has ABI {its}, this program is for {}", sys::DSV4_ABI_VERSION),
        argument: String::new(),
    })
}

//! libFuzzer, called by a test: it makes inputs by what parts of the code earlier ones reached. Of the
//! workspace only this crate has unsafe code, which calling a C++ library takes.

use std::{
    cell::Cell,
    ffi::{CString, c_char, c_int},
    slice,
};

// Links libFuzzer.
use libfuzzer_sys as _;

type Check = dyn Fn(&[u8]) + 'static;
type Callback = unsafe extern "C" fn(*const u8, usize) -> c_int;

unsafe extern "C" {
    /// Runs libFuzzer with the arguments of a command line, the first of which is the program's name. Ends
    /// the process when the time is over, or with a failure.
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: Callback,
    ) -> c_int;
}

thread_local! {
    /// Function that libFuzzer calls with each input, on the thread that runs it.
    static CHECK: Cell<Option<*const Check>> = const { Cell::new(None) };
}

/// Calls `check` with inputs that libFuzzer makes, until its arguments say that it ends. A panic of it
/// ends the process, and the input is written into a file.
///
/// # Errors
/// If libFuzzer returns, which it does only if an argument is wrong: what it returned.
pub fn run(arguments: &[String], check: &dyn Fn(&[u8])) -> Result<(), c_int> {
    let check: *const (dyn Fn(&[u8]) + '_) = check;
    // SAFETY: only the lifetime is another. It is called while this function runs, and so while `check`
    // is borrowed.
    CHECK.set(Some(unsafe {
        std::mem::transmute::<*const (dyn Fn(&[u8]) + '_), *const Check>(check)
    }));
    abort_on_panic();
    let arguments = ["test".to_owned()].iter().chain(arguments).cloned().collect::<Vec<_>>();
    let mut arguments: Vec<*mut c_char> = arguments
        .into_iter()
        .filter_map(|argument| Some(CString::new(argument).ok()?.into_raw()))
        .collect();
    let mut count = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    arguments.push(std::ptr::null_mut());
    let mut first = arguments.as_mut_ptr();
    // SAFETY: `first` points to `count` texts that end with 0 and are never freed, and a null pointer
    // after them, as for `main`. The callback is sound for what libFuzzer gives it.
    let returned = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut first, call) };
    if returned == 0 { Ok(()) } else { Err(returned) }
}

unsafe extern "C" fn call(data: *const u8, size: usize) -> c_int {
    let input = if size == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer gives a buffer of this size, which is valid until this returns.
        unsafe { slice::from_raw_parts(data, size) }
    };
    if let Some(check) = CHECK.get() {
        // SAFETY: `run` has set it, and does not return while libFuzzer calls this.
        unsafe { (*check)(input) };
    }
    0
}

/// libFuzzer writes the input into a file when the process aborts.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Entry point that libfuzzer-sys expects; it is not called here.
#[allow(improper_ctypes_definitions, reason = "the declaration is that of libfuzzer-sys")]
#[unsafe(no_mangle)]
extern "C" fn rust_fuzzer_test_input(_input: &[u8]) -> i32 {
    0
}

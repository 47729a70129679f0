//! The build of a program: the same words for `--version`, the manual and `push_build_info`.
//!
//! The build script determines them, and explains their sources. A program that was built without a
//! commit says so.

/// For `-V` and the manual, like `0.1.0 (59807616e1fa 2026-11-25)`: the version, the commit and its
/// date. A commit with changes that are not in it is marked `-modified`.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PUSH_BUILD_NAME"), ")");

/// For `--version`: the same, and a line for each of what else tells one build from another.
pub const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("PUSH_BUILD_NAME"),
    ")\ncommit: ",
    env!("PUSH_BUILD_COMMIT"),
    "\nmodified: ",
    env!("PUSH_BUILD_MODIFIED"),
    "\nrustc: ",
    env!("PUSH_BUILD_RUSTC"),
    "\ntarget: ",
    env!("PUSH_BUILD_TARGET"),
    "\nopt-level: ",
    env!("PUSH_BUILD_OPTIMISATION"),
);

/// The version alone, `0.1.0`.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The whole hash of the commit, with `-modified` behind it if that is not all that was built, or
/// `unknown`.
pub const REVISION: &str = env!("PUSH_BUILD_REVISION");

/// The day of the commit, `2026-11-25`; empty if it is not known.
pub const DATE: &str = env!("PUSH_BUILD_DATE");

/// The version of the compiler.
pub const RUSTC: &str = env!("PUSH_BUILD_RUSTC");

/// The target of the compiler, like `x86_64-unknown-linux-gnu`.
pub const TARGET: &str = env!("PUSH_BUILD_TARGET");

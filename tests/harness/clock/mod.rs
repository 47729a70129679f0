//! A wrong clock for a program: a small C library ([`SOURCE`]) that Linux preloads into it.
//!
//! The programs take the time of day from the system, so a test of machines whose clocks differ has
//! to replace the system's answer. `libfaketime` could do that, but it also changes the clock by
//! which programs wait, and leaves semaphores behind when its program is killed. The C compiler
//! that this needs is there, because Rust links with it.

use std::{io, path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;

/// The library's source.
const SOURCE: &str = include_str!("clock.c");

/// A clock that can be put ahead, for any number of programs.
#[derive(Debug)]
pub struct WrongClock {
    folder: TempDir,
}

impl WrongClock {
    /// Compiles the library.
    pub fn compile() -> io::Result<Self> {
        let clock = Self { folder: TempDir::new()? };
        let source = clock.folder.path().join("clock.c");
        std::fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(clock.library()).arg(&source);
        let output = compiler.output()?;
        if output.status.success() {
            Ok(clock)
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
        }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    /// The environment variables of a program whose clock is ahead by this much.
    pub fn ahead(&self, ahead: Duration) -> Vec<(String, String)> {
        let library = self.library().to_string_lossy().into_owned();
        vec![
            ("LD_PRELOAD".to_owned(), library),
            ("PUSH_TEST_CLOCK_AHEAD_MS".to_owned(), ahead.as_millis().to_string()),
        ]
    }
}

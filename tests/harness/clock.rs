//! A wrong clock for a program: a few lines of C ([`SOURCE`]) that Linux loads before its own.
//!
//! The services read the time of day in one place and take it from the system, so a test that
//! wants machines whose clocks differ has to stand between the two. `libfaketime` would do it
//! too, but it changes what a program waits with as well, and leaves semaphores behind when its
//! program is killed. The C compiler is the one that Rust needs for linking.

use std::{io, path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;

/// What is loaded into the program.
const SOURCE: &str = include_str!("clock.c");

/// A clock that can be put ahead, for as many programs as there are.
#[derive(Debug)]
pub struct WrongClock {
    folder: TempDir,
}

impl WrongClock {
    /// Compiles it.
    ///
    /// # Errors
    /// When there is no compiler, or it refuses.
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

    /// The environment of a program whose clock is so much ahead.
    pub fn ahead(&self, ahead: Duration) -> Vec<(String, String)> {
        let library = self.library().to_string_lossy().into_owned();
        vec![
            ("LD_PRELOAD".to_owned(), library),
            ("PUSH_TEST_CLOCK_AHEAD_MS".to_owned(), ahead.as_millis().to_string()),
        ]
    }
}

//! A child process that never outlives this one.
//!
//! Drop ends it, but a test that is killed drops nothing. A parent-death signal would not help (it
//! follows the thread that started the child, and exists on Linux only), so every child has a
//! *life line*: a pipe whose write end this process holds, and which the kernel closes however
//! this process ends. A small shell, the guard, reads the pipe, and at its end kills the child's
//! process group and removes its folder. The guard is started first and the program then replaces
//! the guard's parent, so the program is never without a guard, and has the process id that
//! [`Process`] knows.
//!
//! The guard ignores every signal but SIGKILL, and [`Process::freeze`] stops only the program.

pub mod tree;

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

/// `$1`: the folder to remove, or nothing. `$2`: seconds between SIGTERM and SIGKILL. The rest:
/// the program and its arguments.
///
/// `$$` stays the id of the outer shell, and so of the program that replaces it.
const GUARDED: &str = r#"
    folder=$1; grace=$2; shift 2
    exec 3<&0 </dev/null
    {
        trap '' HUP INT QUIT TERM
        cat <&3
        [ "$grace" = 0 ] || kill -TERM 0
        while [ "$grace" -gt 0 ] && kill -0 $$; do sleep 1; grace=$((grace - 1)); done
        kill -KILL $$
        [ -z "$folder" ] || rm -rf "$folder" || { sleep 1; rm -rf "$folder"; }
        kill -KILL 0
    } >/dev/null 2>&1 &
    exec 3<&-
    exec "$@"
"#;

/// Bytes of a log that go into an error.
const LOG_TAIL: usize = 2000;

/// A running program with its own process group and a life line to this process.
///
/// Ended by SIGKILL, with everything it started, when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Pid,
}

/// Where a program's standard output and error go.
#[derive(Debug, Clone, Copy)]
pub enum Output<'a> {
    /// To those of this process.
    Inherited,
    /// Appended to a file.
    Log(&'a Path),
}

impl Process {
    /// Starts `command`, of which the program, arguments, variables and working directory are used.
    /// Its standard input is empty. `folder` is removed if this process dies before it drops the
    /// child.
    ///
    /// # Errors
    /// When it cannot be started. (A program that does not exist starts and leaves with 127.)
    pub fn spawn(command: &Command, output: Output<'_>, folder: Option<&Path>) -> io::Result<Self> {
        Self::spawn_with_grace(command, output, folder, 0)
    }

    /// Like [`spawn`](Self::spawn), for a program that has to end others: if this process dies, it
    /// gets SIGTERM first, and SIGKILL only after so many seconds.
    pub fn spawn_with_grace(
        command: &Command,
        output: Output<'_>,
        folder: Option<&Path>,
        seconds: u32,
    ) -> io::Result<Self> {
        let mut guarded = Command::new("/bin/sh");
        guarded.args(["-c", GUARDED, "guard"]);
        guarded.arg(folder.unwrap_or(Path::new(""))).arg(seconds.to_string());
        guarded.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => guarded.env(name, value),
                None => guarded.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            guarded.current_dir(directory);
        }
        if let Output::Log(path) = output {
            let log = File::options().create(true).append(true).open(path)?;
            guarded.stdout(log.try_clone()?).stderr(log);
        }
        // The write end of this pipe is the life line; `child` keeps it open.
        let child = guarded.stdin(Stdio::piped()).process_group(0).spawn()?;
        let group = Pid::from_child(&child);
        Ok(Self { child, group })
    }

    /// The process id of the program, which is also the id of its process group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns how the program ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends a signal to the program and all that it started. It may have ended already.
    pub fn signal_all(&self, signal: Signal) {
        // It fails only if no process of the group is left.
        let _ = kill_process_group(self.group, signal);
    }

    /// Stops the program (SIGSTOP): its connections stay open and it answers nothing. When this
    /// returns, every thread of it has stopped, which sending the signal alone does not ensure.
    pub fn freeze(&self) -> io::Result<()> {
        kill_process(self.group, Signal::STOP)?;
        // NOWAIT leaves the exit status for `ended` and `kill` to collect.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group), options)?;
        match status {
            Some(status) if status.stopped() => Ok(()),
            _ => Err(io::Error::other("the program has ended")),
        }
    }

    /// Lets a frozen program go on.
    pub fn thaw(&self) -> io::Result<()> {
        Ok(kill_process(self.group, Signal::CONT)?)
    }

    /// Kills the program and all it started, as a power cut would.
    pub fn kill(&mut self) {
        self.signal_all(Signal::KILL);
        // The program has ended; this collects its exit status.
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of a program's log, for an error message.
pub(crate) fn log_tail(path: &Path) -> String {
    let Ok(log) = std::fs::read(path) else { return "no log".to_owned() };
    let tail = log.get(log.len().saturating_sub(LOG_TAIL)..).unwrap_or_default();
    String::from_utf8_lossy(tail).trim().to_owned()
}

/// Returns where a program is installed; system folders count even if they are not in `PATH`, as for
/// servers on Debian.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/opt/homebrew/bin"];
    std::env::split_paths(&path)
        .chain(more.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

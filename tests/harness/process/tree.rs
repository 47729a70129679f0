//! Lists the running processes with `ps`, which Linux and macOS both have, to show that a test left
//! none behind.

use std::{collections::HashMap, io, process::Command};

/// A process, identified by its id and its start time: the system may give its id to another one
/// later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Process id.
    pub id: u32,
    parent: u32,
    started: String,
    /// Its command line, for messages.
    pub command: String,
}

/// A process and all that it started, directly or not, as of now.
pub fn tree_of(root: u32) -> io::Result<Vec<Identity>> {
    let mut children: HashMap<u32, Vec<Identity>> = HashMap::new();
    let mut tree = Vec::new();
    for process in all()? {
        if process.id == root {
            tree.push(process);
        } else {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut next = 0;
    while let Some(process) = tree.get(next) {
        tree.extend(children.remove(&process.id).unwrap_or_default());
        next += 1;
    }
    Ok(tree)
}

/// Those of `processes` that still run.
pub fn still_running(processes: &[Identity]) -> io::Result<Vec<Identity>> {
    let now = all()?;
    let runs = |p: &&Identity| now.iter().any(|q| p.id == q.id && p.started == q.started);
    Ok(processes.iter().filter(runs).cloned().collect())
}

/// All processes but zombies, which have ended.
fn all() -> io::Result<Vec<Identity>> {
    let output =
        Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat=,lstart=,args="]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(read).collect())
}

fn read(line: &str) -> Option<Identity> {
    let mut words = line.split_whitespace();
    let id = words.next()?.parse().ok()?;
    let parent = words.next()?.parse().ok()?;
    let state = words.next()?;
    // Like "Sat Nov 21 09:44:25 2026".
    let started = words.by_ref().take(5).collect::<Vec<_>>().join(" ");
    let command = words.take(4).collect::<Vec<_>>().join(" ");
    (!state.starts_with('Z')).then_some(Identity { id, parent, started, command })
}

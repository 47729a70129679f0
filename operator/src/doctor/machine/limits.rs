//! The limits of this machine: memory that Redis can rely on, and descriptors.

use std::{fs, path::Path};

use push_boot::{
    descriptors::{self, Descriptors, HOW_TO_RAISE},
    engines::{EngineSettings, IndexUrl},
};
use push_store::Finding;

use crate::doctor::servers::encryption::is_this_machine;

/// The file in which Linux says if it may promise more memory than there is.
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";

/// The least connections without a warning, at the start of a service and by the doctor.
const FEW_CLIENTS: usize = 1_000;

/// Checks what concerns a Redis on this machine, if there is one.
pub(in crate::doctor) fn redis(engines: &EngineSettings) -> Option<Finding> {
    let urls = [Some(&engines.index), engines.ledger.as_ref()].into_iter().flatten();
    let mut servers =
        urls.filter(|url| matches!(url, IndexUrl::Redis(_))).flat_map(IndexUrl::servers);
    if !servers.any(|(host, _)| is_this_machine(&host)) {
        return None;
    }
    overcommit(Path::new(OVERCOMMIT))
}

/// Checks that Linux promises memory freely. With `0` or `2`, the fork with which Redis rewrites its file
/// fails on a machine whose memory is half full.
fn overcommit(file: &Path) -> Option<Finding> {
    const SUBJECT: &str = "vm.overcommit_memory";
    // A system that has no such file has no such limit.
    let value = fs::read_to_string(file).ok()?;
    Some(match value.trim() {
        "1" => Finding::ok(SUBJECT, "1"),
        value => {
            let detail = format!(
                "{value}: Redis may fail to write its files when half of the memory is in use, and \
                 refuses writes then"
            );
            let remedy = "`sysctl vm.overcommit_memory=1`, and the same line in /etc/sysctl.d";
            Finding::warning(SUBJECT, detail, remedy)
        }
    })
}

/// Checks how many files a program that is started from here may have open.
pub(in crate::doctor) fn descriptors() -> Finding {
    judge_descriptors(descriptors::raise().limit)
}

fn judge_descriptors(limit: u64) -> Finding {
    const SUBJECT: &str = "open files";
    let for_clients = Descriptors::of_limit(limit).for_clients;
    if for_clients >= FEW_CLIENTS {
        return Finding::ok(SUBJECT, format!("{limit} for a program started from here"));
    }
    let detail =
        format!("{limit} for a program started from here, of which {for_clients} are for clients");
    Finding::warning(SUBJECT, detail, HOW_TO_RAISE)
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    #[test]
    fn a_kernel_that_promises_no_memory_is_a_warning_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("overcommit_memory");
        assert_eq!(overcommit(&file), None);
        for (value, level) in [("1\n", Level::Ok), ("0\n", Level::Warning), ("2\n", Level::Warning)]
        {
            fs::write(&file, value).unwrap();
            let found = overcommit(&file).unwrap();
            assert_eq!(found.level, level, "{value}: {}", found.detail);
            let says_how = found.remedy().is_some_and(|remedy| remedy.contains("sysctl vm."));
            assert_eq!(says_how, level == Level::Warning);
        }
    }

    #[test]
    fn few_descriptors_are_a_warning_that_says_how_to_raise_them() {
        assert_eq!(judge_descriptors(1 << 20).level, Level::Ok);
        let found = judge_descriptors(1_024);
        assert_eq!(found.level, Level::Warning);
        assert!(found.detail.ends_with("768 are for clients"), "{found:?}");
        assert!(found.remedy().unwrap().contains("raise the hard limit"), "{found:?}");
    }
}

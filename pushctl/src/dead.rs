//! `pushctl dead`: lists, replays and drops dead letters, the queue messages that no worker could
//! process.

use anyhow::bail;
use clap::Subcommand;
use push_index::Index;
use push_operator::{audit::Actor, dead};
use push_queue::Queue;

use crate::output::{Output, Table};

/// Commands on dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// List them, oldest first, with when and why they came here
    List {
        /// The most to list
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Move them back to the lanes they came from
    Replay(Selection),
    /// Delete them
    Drop(Selection),
}

/// The dead letters that a command works on.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Ids from `pushctl dead list`
    ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

impl Selection {
    /// Returns the ids that were given; none for all.
    fn ids(&self) -> anyhow::Result<Option<&[String]>> {
        match (self.all, self.ids.as_slice()) {
            (true, _) => Ok(None),
            (false, []) => bail!("name the dead letters by their ids, or give --all"),
            (false, ids) => Ok(Some(ids)),
        }
    }
}

impl DeadCommand {
    /// Returns true if the command changes something and so is recorded in the audit trail.
    pub(crate) fn is_change(&self) -> bool {
        !matches!(self, Self::List { .. })
    }
}

/// Runs the command. A change is recorded in the index, if there is one.
///
/// # Errors
/// If the queue did not answer, or a change could not be recorded.
pub async fn run(
    command: DeadCommand,
    queue: &dyn Queue,
    index: Option<&dyn Index>,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        DeadCommand::List { limit } => {
            let letters = dead::list(queue, limit).await?;
            let mut table = Table::new(&["ID", "SINCE", "LANE", "BYTES", "REASON"]);
            for letter in &letters {
                table.row([
                    letter.id.clone(),
                    letter.died_at.map_or("unknown".to_owned(), |at| at.to_string()),
                    letter.lane.unwrap_or("unknown").to_owned(),
                    letter.bytes.to_string(),
                    letter.reason.clone(),
                ]);
            }
            let text =
                if letters.is_empty() { "no dead letters".to_owned() } else { table.to_string() };
            out.result(text, &letters)
        }
        DeadCommand::Replay(selection) => {
            let done = dead::replay(queue, index, actor, selection.ids()?).await?;
            out.result(format!("{} moved back to their lanes", done.replayed), &done)
        }
        DeadCommand::Drop(selection) => {
            let done = dead::drop_letters(queue, index, actor, selection.ids()?).await?;
            out.result(format!("{} deleted", done.dropped), &done)
        }
    }
}

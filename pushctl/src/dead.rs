//! `pushctl dead`: lists, replays and drops dead letters, the queue messages that no worker could
//! process.

use anyhow::{bail, ensure};
use clap::Subcommand;
use push_index::Index;
use push_operator::{
    audit::Actor,
    dead::{self, Scope},
};
use push_queue::Queue;

use crate::{
    confirm::{Confirmation, count},
    output::{Output, Table},
};

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
    /// Delete them; their devices never get these messages
    Drop {
        /// The dead letters
        #[command(flatten)]
        selection: Selection,
        /// The answer to the question
        #[command(flatten)]
        confirmation: Confirmation,
    },
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

/// Fails if none of the dead letters that were named is there.
fn check_found(ids: Option<&[String]>, found: u64) -> anyhow::Result<()> {
    ensure!(ids.is_none() || found > 0, "there is no such dead letter: see `pushctl dead list`");
    Ok(())
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
            let mut table = Table::new(&["ID", "SINCE", "LANE", "BYTES", "REASON"])
                .without_first(&["BYTES", "LANE"]);
            for letter in letters.iter().map(|letter| &letter.head) {
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
            let ids = selection.ids()?;
            let done = dead::replay(queue, index, actor, Scope::All, ids).await?;
            check_found(ids, done.replayed)?;
            out.result(format!("{} moved back to their lanes", done.replayed), &done)
        }
        DeadCommand::Drop { selection, confirmation } => {
            let ids = selection.ids()?;
            let loss = async || {
                let letters = match ids {
                    Some(ids) => ids.len() as u64,
                    None => queue.counts().await?.dead,
                };
                Ok(format!("deletes {}", count(letters, "dead letter")))
            };
            confirmation.ask(loss, out).await?;
            let done = dead::drop_letters(queue, index, actor, Scope::All, ids).await?;
            check_found(ids, done.dropped)?;
            out.result(format!("{} deleted", done.dropped), &done)
        }
    }
}

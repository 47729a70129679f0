//! The lines of a batch request, each checked as a single push would be.

use std::sync::Arc;

use push_model::{
    device::TransportKind, ids::MessageId, time::UnixMillis, trace_parent::TraceParent,
};

use crate::{
    apps::{CachedApp, Caller},
    body::{Purpose, Reservation},
    handlers::{
        lines::{lines, next_portion},
        push::{
            CheckOutcome, CheckedPush, PushHandler, ReadPush,
            idempotency::{KnownNonces, checked_key, identify},
            size,
            unknown_topics::{self, names_topics},
        },
    },
    message::Push,
    publisher::PushGroup,
    rejection::Rejection,
};

/// About how many bytes a job has more than its line.
const JOB_OVERHEAD: usize = 192;

/// A line after its checks.
pub(super) enum CheckedLine {
    /// It is valid and not to be sent. The texts are warnings.
    DryRun(MessageId, Vec<String>),
    /// Its job is in the group with this index, and it is accepted, with these warnings, if that group is.
    InGroup(MessageId, usize, Vec<String>),
    Rejected(Rejection),
}

/// The lines of a request after their checks, and the groups of their jobs.
pub(super) struct CheckedLines {
    pub(super) lines: Vec<CheckedLine>,
    pub(super) groups: Vec<PushGroup>,
}

impl PushHandler {
    /// Checks the first `allowed` lines of a body. `trace` is what the spans of their jobs follow; `strict` refuses
    /// unknown fields. `memory` grows with the devices of the users that they name.
    pub(super) async fn check_lines(
        &self,
        caller: &Caller,
        body: &[u8],
        allowed: usize,
        trace: Option<TraceParent>,
        strict: bool,
        memory: &mut Reservation,
    ) -> CheckedLines {
        let app = &*caller.cached;
        self.usage.learn(app).await;
        let carriers = self.carriers(app, body.len()).await;
        let stamp = (UnixMillis::now(), trace);
        // For all portions together, so that an index that is away holds the request up once.
        let until = self.keys.ledger_deadline();
        let mut groups = self.publisher.push_groups(allowed, body.len() + allowed * JOB_OVERHEAD);
        let mut checked = Vec::with_capacity(allowed);
        // Each job is written into this buffer, and then appended to its group.
        let mut job = Vec::new();
        let mut lines = lines(body).take(allowed).peekable();
        while lines.peek().is_some() {
            let read = |line| self.read_line(app, line, carriers.as_ref(), strict);
            let mut read: Vec<_> = next_portion(&mut lines).map(read).collect();
            if read.iter().flatten().any(|line| !line.push.wanted.users.is_empty()) {
                Box::pin(self.add_users_of_lines(caller, &mut read, memory)).await;
            }
            if read.iter().flatten().any(|line| names_topics(&line.push)) {
                let mut pushes: Vec<_> =
                    read.iter_mut().flatten().map(|line| &mut line.push).collect();
                let (index, app) = (&self.usage.index, caller.key());
                Box::pin(unknown_topics::note(index, &app, &mut pushes)).await;
            }
            let keyed = read.iter().flatten().filter(|line| line.has_key).map(|line| line.id);
            let keyed: Vec<MessageId> = keyed.collect();
            let known = match keyed.is_empty() {
                true => KnownNonces::default(),
                false => self.keys.known_nonces(&app.app, keyed, until).await,
            };
            for line in read {
                job.clear();
                let line = line.and_then(|line| self.check(caller, line, &known, stamp, &mut job));
                checked.push(match line {
                    Ok(CheckedPush { outcome: CheckOutcome::DryRun(id), warnings }) => {
                        CheckedLine::DryRun(id, warnings)
                    }
                    Ok(CheckedPush { outcome: CheckOutcome::Job(id, place), warnings }) => {
                        CheckedLine::InGroup(id, groups.add(&job, place), warnings)
                    }
                    Err(rejection) => CheckedLine::Rejected(rejection),
                });
            }
            tokio::task::yield_now().await;
        }
        CheckedLines { lines: checked, groups: groups.finish() }
    }

    /// Adds the devices of the users that lines name to their audiences.
    async fn add_users_of_lines(
        &self,
        caller: &Caller,
        lines: &mut [Result<ReadPush<'_>, Rejection>],
        memory: &mut Reservation,
    ) {
        let mut found = Reservation::empty(&caller.cached.memory, Purpose::Batch);
        let asked = lines.iter().flatten().map(|line| &line.push.wanted);
        let devices = self.user_devices(caller, asked, &mut found).await;
        for line in lines {
            if let Ok(read) = line
                && let Err(refused) = self.add_devices(&mut read.push, &devices, memory)
            {
                *line = Err(refused);
            }
        }
    }

    /// Reads a line and checks its fields.
    fn read_line<'a>(
        &self,
        app: &CachedApp,
        line: &'a [u8],
        carriers: Option<&Arc<[TransportKind]>>,
        strict: bool,
    ) -> Result<ReadPush<'a>, Rejection> {
        let limit = self.http.max_body;
        if line.len() > limit {
            return Err(Rejection::MessageTooLarge(limit));
        }
        let (push, key) = Push::read_line(line, self.rules_of(app))?;
        if strict {
            push.notes.refuse_unknown_fields()?;
        }
        let key = key.as_ref().map(|key| checked_key(key.as_bytes(), "idempotency_key"));
        let key = key.transpose()?;
        let id = identify(&app.app, key, push.audience_kind(), push.dry_run);
        let has_key = key.is_some();
        Ok(ReadPush { push, id, has_key, carriers: size::of_line(carriers, line.len()) })
    }
}

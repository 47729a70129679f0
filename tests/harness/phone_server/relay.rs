//! The frames between a client and the server's library, which are counted, changed and withheld so that a
//! server does what a library would not.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf,
        WriteHalf, duplex, split,
    },
    sync::{Mutex as Turn, watch},
};

use super::{Shared, serve::serve};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;

const MAX_CONCURRENT_STREAMS: u16 = 3;
const NO_ERROR: u32 = 0;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The first bytes of a client.
const PREFACE: usize = 24;
/// The bytes that may be on their way between the client and the library.
const BUFFER: usize = 256 * 1024;

struct Frame {
    kind: u8,
    flags: u8,
    id: u32,
    payload: Vec<u8>,
}

/// The frames of one connection.
struct Relay<S> {
    shared: Arc<Shared>,
    to_client: Turn<ToClient<S>>,
    streams: Mutex<Streams>,
}

struct ToClient<S> {
    io: WriteHalf<S>,
    /// The bytes until the connection is cut.
    left: u64,
    cuts: watch::Receiver<u64>,
}

struct Streams {
    open: HashSet<u32>,
    newest: u32,
    begun: u32,
    /// Later ones are not begun.
    last: u32,
    /// The limit that the client has acknowledged, and those that it has not.
    limit: usize,
    stated: Vec<usize>,
}

/// Serves a connection until it ends.
pub(super) async fn relay<S>(stream: S, shared: &Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (ours, library) = duplex(BUFFER);
    let (from_client, to_client) = split(stream);
    let (from_library, to_library) = split(ours);
    let wire = shared.wire();
    let relay = Relay {
        shared: shared.clone(),
        to_client: Turn::new(ToClient {
            io: to_client,
            left: wire.cut_after.unwrap_or(u64::MAX),
            cuts: shared.cuts.subscribe(),
        }),
        streams: Mutex::new(Streams {
            open: HashSet::new(),
            newest: 0,
            begun: 0,
            last: u32::MAX,
            limit: usize::try_from(wire.streams).unwrap_or(usize::MAX),
            stated: Vec::new(),
        }),
    };
    tokio::select! {
        _ = relay.requests(from_client, to_library) => {}
        _ = relay.answers(from_library) => {}
        _ = relay.limits() => {}
        _ = serve(library, shared) => {}
    }
}

impl<S: AsyncRead + AsyncWrite> Relay<S> {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn requests(
        &self,
        mut client: ReadHalf<S>,
        mut library: WriteHalf<DuplexStream>,
    ) -> io::Result<()> {
        let mut preface = [0; PREFACE];
        client.read_exact(&mut preface).await?;
        library.write_all(&preface).await?;
        loop {
            let frame = Frame::read(&mut client).await?;
            self.shared.answers().await;
            let wire = self.shared.wire();
            let (mut goodbye, mut punished) = (None, false);
            {
                let mut streams = self.streams();
                match frame.kind {
                    HEADERS if frame.id > streams.newest && frame.id <= streams.last => {
                        streams.newest = frame.id;
                        streams.begun += 1;
                        streams.open.insert(frame.id);
                        let open = streams.open.len();
                        punished = wire.punishes && open > streams.limit;
                        let mut record = self.shared.record();
                        record.most_streams = record.most_streams.max(open);
                        let is_last =
                            wire.goodbye_after.is_some_and(|after| streams.begun >= after);
                        if is_last && streams.last == u32::MAX {
                            streams.last = frame.id;
                            goodbye = Some(frame.id);
                        }
                    }
                    RST_STREAM => drop(streams.open.remove(&frame.id)),
                    // The library knows nothing of a limit that was stated here.
                    SETTINGS if frame.flags & ACK != 0 && !streams.stated.is_empty() => {
                        streams.limit = streams.stated.remove(0);
                        continue;
                    }
                    _ => {}
                }
                if frame.id > streams.last {
                    continue;
                }
            }
            if punished {
                self.shared.record().punished += 1;
                return self.goodbye(frame.id.saturating_sub(2), ENHANCE_YOUR_CALM).await;
            }
            if let Some(last) = goodbye {
                self.goodbye(last, NO_ERROR).await?;
            }
            library.write_all(&frame.bytes()).await?;
        }
    }

    async fn answers(&self, mut library: ReadHalf<DuplexStream>) -> io::Result<()> {
        let mut is_first = true;
        loop {
            let mut frame = Frame::read(&mut library).await?;
            if std::mem::take(&mut is_first) {
                let limit = u32::try_from(self.streams().limit).unwrap_or(u32::MAX);
                frame.payload.extend(limit_payload(limit));
            }
            let ends = match frame.kind {
                DATA | HEADERS => frame.flags & END_STREAM != 0,
                RST_STREAM => true,
                _ => false,
            };
            if ends {
                self.streams().open.remove(&frame.id);
            }
            self.write(&frame).await?;
        }
    }

    /// States each new limit.
    async fn limits(&self) -> io::Result<()> {
        let mut wire = self.shared.wire.subscribe();
        let mut stated = wire.borrow_and_update().streams;
        while wire.changed().await.is_ok() {
            let streams = wire.borrow_and_update().streams;
            if stated == streams {
                continue;
            }
            stated = streams;
            let limit = usize::try_from(streams).unwrap_or(usize::MAX);
            self.streams().stated.push(limit);
            let payload = limit_payload(streams).to_vec();
            self.write(&Frame { kind: SETTINGS, flags: 0, id: 0, payload }).await?;
        }
        Ok(())
    }

    async fn goodbye(&self, last: u32, code: u32) -> io::Result<()> {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.write(&Frame { kind: GOAWAY, flags: 0, id: 0, payload }).await
    }

    async fn write(&self, frame: &Frame) -> io::Result<()> {
        let bytes = frame.bytes();
        let mut to_client = self.to_client.lock().await;
        let ToClient { io, left, cuts } = &mut *to_client;
        self.shared.answers().await;
        if cuts.has_changed().is_ok_and(|has_changed| has_changed) {
            *left = *cuts.borrow_and_update();
        }
        let fitting = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
        let (now, cut) = bytes.split_at(fitting);
        *left -= now.len() as u64;
        io.write_all(now).await?;
        io.flush().await?;
        if cut.is_empty() { Ok(()) } else { Err(io::ErrorKind::ConnectionReset.into()) }
    }
}

impl Frame {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, id: u32::from_be_bytes(id) & 0x7fff_ffff, payload })
    }

    fn bytes(&self) -> Vec<u8> {
        let [_, length @ ..] = u32::try_from(self.payload.len()).unwrap_or_default().to_be_bytes();
        let mut bytes = Vec::with_capacity(9 + self.payload.len());
        bytes.extend(length);
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

fn limit_payload(streams: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (MAX_CONCURRENT_STREAMS.to_be_bytes(), streams.to_be_bytes());
    [a, b, c, d, e, f]
}

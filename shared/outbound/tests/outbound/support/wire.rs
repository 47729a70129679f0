//! An HTTP/2 server written frame by frame, so that it can do what a library would not.

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The first bytes of a client.
const PREFACE: usize = 24;

/// `:status: 200`, an entry of HPACK's static table.
const STATUS_200: u8 = 0x88;

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The end of the request with this stream id.
    Request(u32),
    /// It gave the stream up.
    Reset(u32),
    /// It took enough of the stream's data to be sent more.
    Room(u32),
    /// A ping, which is not answered yet.
    Ping([u8; 8]),
    /// The connection ended.
    End,
}

/// The server's side of one connection.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
}

impl Wire<TcpStream> {
    /// Accepts the next connection and states how many streams it may have at a time.
    pub(crate) async fn accept(listener: &TcpListener, streams: Option<u32>) -> Self {
        let mut wire = Self::silent(listener).await;
        wire.settings(streams).await;
        wire
    }

    /// Accepts the next connection without a word.
    pub(crate) async fn silent(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut wire = Self { stream };
        let mut preface = [0; PREFACE];
        wire.stream.read_exact(&mut preface).await.unwrap();
        wire
    }

    /// Ends the connection with a reset of TCP.
    pub(crate) fn cut_off(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) async fn settings(&mut self, streams: Option<u32>) {
        let mut payload = Vec::new();
        if let Some(streams) = streams {
            payload.extend([0, 3]);
            payload.extend(streams.to_be_bytes());
        }
        self.frame(SETTINGS, 0, 0, &payload).await;
    }

    pub(crate) async fn answer(&mut self, id: u32) {
        self.frame(HEADERS, END_STREAM | END_HEADERS, id, &[STATUS_200]).await;
    }

    /// The bytes of an answer with a body.
    pub(crate) fn answer_bytes(id: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = frame(HEADERS, END_HEADERS, id, &[STATUS_200]);
        bytes.extend(frame(DATA, END_STREAM, id, body));
        bytes
    }

    /// The beginning of an answer with a body.
    pub(crate) async fn begin_answer(&mut self, id: u32) {
        self.frame(HEADERS, END_HEADERS, id, &[STATUS_200]).await;
    }

    /// A piece of a body that is not the last one.
    pub(crate) async fn piece(&mut self, id: u32, piece: &[u8]) {
        self.frame(DATA, 0, id, piece).await;
    }

    pub(crate) async fn reset(&mut self, id: u32, code: u32) {
        self.frame(RST_STREAM, 0, id, &code.to_be_bytes()).await;
    }

    pub(crate) async fn goaway(&mut self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.frame(GOAWAY, 0, 0, &payload).await;
    }

    pub(crate) async fn pong(&mut self, payload: [u8; 8]) {
        self.frame(PING, ACK, 0, &payload).await;
    }

    /// Reads until the client has sent something that matters. SETTINGS are acknowledged.
    pub(crate) async fn next(&mut self) -> Sent {
        loop {
            let mut head = [0; 9];
            if self.stream.read_exact(&mut head).await.is_err() {
                return Sent::End;
            }
            let [a, b, c, kind, flags, id @ ..] = head;
            let id = u32::from_be_bytes(id) & 0x7fff_ffff;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            if self.stream.read_exact(&mut payload).await.is_err() {
                return Sent::End;
            }
            match kind {
                DATA | HEADERS if flags & END_STREAM != 0 => return Sent::Request(id),
                RST_STREAM => return Sent::Reset(id),
                WINDOW_UPDATE if id > 0 => return Sent::Room(id),
                PING if flags & ACK == 0 => return Sent::Ping(payload.try_into().unwrap()),
                SETTINGS if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]).await,
                _ => {}
            }
        }
    }

    /// Reads the next request.
    #[track_caller]
    pub(crate) fn request(&mut self) -> impl Future<Output = u32> {
        let caller = std::panic::Location::caller();
        async move {
            match self.next().await {
                Sent::Request(id) => id,
                sent => panic!("{sent:?} instead of a request at {caller}"),
            }
        }
    }

    /// Answers every request until the connection ends; gives their number.
    pub(crate) async fn serve(&mut self) -> usize {
        let mut served = 0;
        loop {
            match self.next().await {
                Sent::Request(id) => {
                    self.answer(id).await;
                    served += 1;
                }
                Sent::Ping(payload) => self.pong(payload).await,
                Sent::Reset(_) | Sent::Room(_) => {}
                Sent::End => return served,
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // The client may have closed the connection, which is for the test to notice.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    async fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        self.write(&frame(kind, flags, id, payload)).await;
    }
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length.to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(id.to_be_bytes());
    bytes.extend(payload);
    bytes
}

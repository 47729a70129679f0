//! Frames of hostile and of unusual clients, over a stream in memory.

use proptest::prop_assert;
use tokio::{
    io::{AsyncReadExt as _, DuplexStream},
    time::timeout,
};

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Returns a frame with the mask 0, which leaves the payload as it is.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ ..126 => frame.push(MASKED | u8::try_from(len).unwrap()),
        len => {
            frame.push(MASKED | 126);
            frame.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

async fn connection(buffer: usize) -> (WebSocket<DuplexStream>, DuplexStream) {
    let (near, far) = tokio::io::duplex(buffer);
    (WebSocket::new(near).await, far)
}

/// Sends these frames and returns what the broker reads of them, the error with which that ended, and
/// what the client gets.
async fn received(frames: &[Vec<u8>]) -> (Vec<u8>, Option<io::ErrorKind>, Vec<u8>) {
    let (mut socket, mut far) = connection(1 << 20).await;
    far.write_all(&frames.concat()).await.unwrap();
    far.shutdown().await.unwrap();
    let mut read = Vec::new();
    let end = timeout(DEADLINE, socket.read_to_end(&mut read)).await.unwrap().err();
    drop(socket);
    let mut answers = Vec::new();
    far.read_to_end(&mut answers).await.unwrap();
    (read, end.map(|error| error.kind()), answers)
}

/// Returns the frame by which the broker closes.
fn close(code: u16) -> Vec<u8> {
    [&[FINAL | CLOSE, 2][..], &code.to_be_bytes()].concat()
}

#[tokio::test]
async fn packets_span_messages_and_fragments_of_one_byte() {
    let mut frames = vec![frame(FINAL | BINARY, b"one "), frame(FINAL | BINARY, b"")];
    frames.push(frame(BINARY, b"t"));
    for byte in b"wo thre" {
        frames.push(frame(FINAL | PING, b"?"));
        frames.push(frame(CONTINUATION, &[*byte]));
    }
    frames.push(frame(FINAL | CONTINUATION, b"e"));
    let (read, end, answers) = received(&frames).await;
    assert_eq!((&read[..], end), (&b"one two three"[..], None));
    assert_eq!(answers, [FINAL | PONG, 1, b'?'].repeat(7), "each PING is answered");
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_told_how() {
    let long =
        |len: u64| [&[FINAL | BINARY, MASKED | 127][..], &len.to_be_bytes(), &[0; 4]].concat();
    let too_much = vec![b'x'; MESSAGE / 2 + 1];
    let broken: [(&str, Vec<Vec<u8>>, u16); 12] = [
        ("a text", vec![frame(FINAL | TEXT, b"text")], 1003),
        ("no UTF-8", vec![frame(FINAL | TEXT, b"\xff")], 1007),
        ("no mask", vec![vec![FINAL | BINARY, 2, 0, 0]], 1002),
        ("a frame too large", vec![long(MESSAGE as u64 + 1)], 1009),
        ("a length of 64 bits", vec![long(u64::MAX)], 1009),
        (
            "fragments too large",
            vec![frame(BINARY, &too_much), frame(CONTINUATION, &too_much)],
            1009,
        ),
        ("a reserved bit", vec![frame(FINAL | 0x40 | BINARY, b"x")], 1002),
        ("an unknown frame", vec![frame(FINAL | 3, b"x")], 1002),
        ("a PING too large", vec![frame(FINAL | PING, &[0; 126])], 1002),
        ("a PING in parts", vec![frame(PING, b"x")], 1002),
        ("a part of nothing", vec![frame(FINAL | CONTINUATION, b"x")], 1002),
        ("two messages in one", vec![frame(BINARY, b"x"), frame(FINAL | BINARY, b"x")], 1002),
    ];
    for (what, mut frames, code) in broken {
        frames.insert(0, frame(FINAL | BINARY, b"before"));
        frames.push(frame(FINAL | BINARY, b"after"));
        let (read, end, answers) = received(&frames).await;
        assert_eq!((&read[..], end), (&b"before"[..], Some(io::ErrorKind::InvalidData)), "{what}");
        assert_eq!(answers, close(code), "{what}");
    }
}

#[tokio::test]
async fn a_close_is_answered_and_ends_the_stream() {
    let frames = [frame(FINAL | CLOSE, &1001_u16.to_be_bytes()), frame(FINAL | BINARY, b"after")];
    let (read, end, answers) = received(&frames).await;
    assert_eq!((read, end), (vec![], None));
    assert_eq!(answers, close(1001));
}

#[tokio::test]
async fn what_is_written_is_binary_messages_and_ends_with_close() {
    let (mut socket, mut far) = connection(1 << 20).await;
    let bytes: Vec<u8> = (0..10_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    socket.write_all(&bytes).await.unwrap();
    socket.shutdown().await.unwrap();
    drop(socket);
    let (mut payload, mut last) = (Vec::<u8>::new(), Vec::<u8>::new());
    far.read_to_end(&mut last).await.unwrap();
    while last[0] == FINAL | BINARY {
        let len = usize::from(u16::from_be_bytes([last[2], last[3]]));
        assert!(last[1] == 126 && len <= CHUNK, "{:?}", &last[..4]);
        payload.extend(&last[4..4 + len]);
        last.drain(..4 + len);
    }
    assert!(payload == bytes && last == close(1000), "{last:?}");
}

#[tokio::test]
async fn a_client_that_reads_nothing_takes_bounded_memory_and_its_pings_too() {
    let (socket, mut far) = connection(64).await;
    let (mut reader, mut writer) = tokio::io::split(socket);
    let pings = tokio::spawn(async move {
        while far.write_all(&frame(FINAL | PING, &[b'?'; 125])).await.is_ok() {}
    });
    let mut written = 0;
    let blocked = async {
        let mut buf = [0; 64];
        loop {
            tokio::select! {
                n = writer.write(&[0; 1 << 16]) => written += n.unwrap(),
                read = reader.read(&mut buf) => panic!("{read:?}"),
            }
        }
    };
    assert!(timeout(Duration::from_millis(200), blocked).await.is_err());
    assert!(written <= 2 * CHUNK, "{written} bytes are ahead of the network");
    drop((reader, writer));
    pings.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_given_up_is_closed_once() {
    let (mut socket, mut far) = connection(64).await;
    let client = tokio::spawn(async move {
        let mut answer = [0; 4];
        far.read_exact(&mut answer).await.unwrap();
        far.write_all(&[b'x'; 1024]).await.unwrap();
        drop(far);
        answer
    });
    timeout(DEADLINE, socket.give_up(CloseCode::Policy)).await.unwrap();
    assert_eq!(client.await.unwrap().to_vec(), close(1008));
    socket.give_up(CloseCode::Away).await;
}

mod fuzz {
    use super::*;

    /// The bytes of an answer beyond those that a client sent: CLOSE.
    const ANSWER: usize = 16;

    #[test]
    fn whatever_frames_a_client_sends_no_more_is_read_or_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tokens = &["\u{2}", "\u{0}\u{1}", "\u{0}\u{0}\u{0}\u{0}", "\u{9}", "\u{8}\u{2}"];
        push_fuzz::fuzz("websocket", tokens, |bytes| {
            runtime.block_on(async {
                let (read, _, answers) = received(&[bytes.to_vec()]).await;
                prop_assert!(read.len() <= bytes.len(), "{} bytes read", read.len());
                prop_assert!(answers.len() <= bytes.len() + ANSWER, "{} answered", answers.len());
                Ok(())
            })
        });
    }
}

//! A whole ingest whose publisher fails.

use clap::Parser;
use push_boot::{engines::Stores, settings::ConfigErrors};
use push_model::{app::App, ledger::Retention, secret::Secret};
use push_store::sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{RunError, settings::IngestArgs};

#[tokio::test]
async fn a_publisher_that_fails_ends_the_service_after_every_push_is_answered() {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: IngestArgs,
    }
    let settings = Cli::parse_from(["ingest"])
        .args
        .check(Some(Retention::all(Duration::from_secs(60))), &mut ConfigErrors::default())
        .unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("index");
    let store = SqliteStore::open(&file, "test", Default::default()).await.unwrap();
    let stores = Stores::of_sqlite(store).await.unwrap();
    let secret = Secret::generate();
    stores.index.create_app(&App::new("a".parse().unwrap(), &secret, UnixMillis(0))).await.unwrap();
    let queue = ScriptedQueue::new(0, false);
    queue.confirms.close();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let running = crate::run(settings, listener, queue, stores, CancellationToken::new());
    let running = tokio::spawn(running);

    let body = r#"{"type":1,"time_to_live":60,"condition":{"type":0}}"#;
    let (length, secret) = (body.len(), secret.expose());
    let request = format!(
        "POST /v1/message/push/a HTTP/1.1\r\nhost: a\r\nauthorization: {secret}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(running.await.unwrap(), Err(RunError::Publisher));
}

//! `amqps://`

use bytes::Bytes;
use push_queue::{
    Lane, Queue, QueueError,
    amqp::{AmqpQueue, AmqpSettings},
};
use push_tests::{namespace, servers::RabbitMq};
use push_tls::{client::ClientTls, failure::TlsFailure};

use super::{Setting, failure, texts};

async fn connect(url: &str, tls: ClientTls) -> Result<AmqpQueue, QueueError> {
    let settings = AmqpSettings { tls: Some(tls), ..AmqpSettings::default() };
    AmqpQueue::connect(url, &namespace(), settings).await
}

async fn refused(url: &str, tls: ClientTls) -> QueueError {
    match connect(url, tls).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn rabbitmq_is_reached_with_the_right_certificates_and_every_refusal_says_which_is_wrong() {
    let setting = Setting::new();
    let mut server = RabbitMq::start_with_tls(setting.tls()).await.unwrap();
    let url = server.tls_url();

    let queue = connect(&url, setting.right()).await.unwrap();
    queue.publish(Lane::Jobs, Bytes::from_static(b"encrypted")).await.unwrap();
    assert_eq!(queue.depth(Lane::Jobs).await.unwrap(), 1);
    assert!(queue.describe().await.unwrap().starts_with("RabbitMQ"));
    queue.close().await;

    for (tls, text) in setting.wrong() {
        let error = refused(&url, tls).await;
        assert!(texts(&error).contains(text), "{}", texts(&error));
    }
    let error = refused(&url.replace("localhost", "127.0.0.1"), setting.right()).await;
    assert!(matches!(failure(&error), TlsFailure::WrongName(_)), "{error:?}");
    let in_clear = server.url().replace("amqp://", "amqps://").replace("127.0.0.1", "localhost");
    assert_eq!(failure(&refused(&in_clear, setting.right()).await), TlsFailure::NoTls);

    setting.expire();
    server.restart().await.unwrap();
    let error = refused(&url, setting.right()).await;
    assert!(matches!(failure(&error), TlsFailure::Expired(_)), "{error:?}");
}

//! `rediss://` and `rediss-cluster://`

use push_index::redis::RedisIndex;
use push_store::{IndexError, Store, redis::RedisSettings};
use push_tests::{
    certificates::{Authority, Validity},
    namespace,
    servers::{Redis, RedisCluster, Tls},
};
use push_tls::{client::ClientTls, failure::TlsFailure};

use super::{Setting, failure, texts};

async fn connect(url: &str, tls: ClientTls) -> Result<RedisIndex, IndexError> {
    let settings = RedisSettings { tls: Some(tls), ..RedisSettings::default() };
    RedisIndex::connect(url, &namespace(), settings).await
}

#[tokio::test]
async fn redis_is_reached_with_the_right_certificates_and_every_refusal_says_which_is_wrong() {
    let setting = Setting::new();
    let mut server = Redis::start_with_tls(setting.tls()).await.unwrap();
    let url = server.tls_url();

    let index = connect(&url, setting.right()).await.unwrap();
    index.inspect().await.unwrap();

    for (tls, text) in setting.wrong() {
        let error = connect(&url, tls).await.unwrap_err();
        assert!(texts(&error).contains(text), "{}", texts(&error));
    }
    let other_name = url.replace("localhost", "127.0.0.1");
    let error = connect(&other_name, setting.right()).await.unwrap_err();
    assert!(matches!(failure(&error), TlsFailure::WrongName(_)), "{error:?}");

    setting.expire();
    server.restart().await.unwrap();
    let error = connect(&url, setting.right()).await.unwrap_err();
    assert!(matches!(failure(&error), TlsFailure::Expired(_)), "{error:?}");
}

#[tokio::test]
async fn a_client_certificate_that_is_renewed_is_shown_to_redis_on_the_next_connection() {
    let setting = Setting::new();
    let server = Redis::start_with_tls(setting.tls()).await.unwrap();
    let shown = setting.authority.client("worker", Validity::Now);
    let tls = crate::tls::support::client(&setting.authority, Some(&shown)).unwrap();
    connect(&server.tls_url(), tls.clone()).await.unwrap();
    setting.authority.client("worker", Validity::Expired).replace(&shown);
    connect(&server.tls_url(), tls.clone()).await.unwrap_err();
    setting.authority.client("worker", Validity::Now).replace(&shown);
    connect(&server.tls_url(), tls).await.unwrap();
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls_on_every_node_and_says_why_not() {
    let authority = Authority::new();
    let tls = Tls {
        // The nodes name each other by address.
        certificate: authority.local_server(),
        authority: authority.file().to_owned(),
        clients_must_prove: true,
    };
    let cluster = RedisCluster::start_with_tls(tls).await.unwrap();
    let setting = Setting { certificate: authority.local_server(), authority };
    let index = connect(&cluster.tls_url(), setting.right()).await.unwrap();
    let findings = index.inspect().await.unwrap();
    let nodes = findings.iter().filter(|finding| finding.subject == "redis version").count();
    assert_eq!(nodes, 3, "{findings:#?}");
    for (tls, text) in setting.wrong() {
        let error = connect(&cluster.tls_url(), tls).await.unwrap_err();
        assert!(texts(&error).contains(text), "{}", texts(&error));
    }
}

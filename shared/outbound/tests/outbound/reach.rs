//! Where tenants' requests lead, over real sockets.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use push_outbound::{Origin, Outbound, OutboundSettings, Owner, Step, SystemResolver, Why};
use tokio::net::TcpListener;

use crate::{
    addresses::{REFUSED, SPELLINGS},
    support::{
        Names, allowing, answered, listen, patient, plain, send, settings, tenant,
        tls::{Certificates, serve_plain},
        unreachable,
        wire::Wire,
    },
};

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Counts the connections that come, and keeps them open.
fn watch(listener: TcpListener) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            kept.push(stream);
        }
    });
    count
}

/// Sends a tenant's request to the URL, which must not be connected to.
async fn is_forbidden(outbound: &Outbound, url: &str) {
    let (step, why) = unreachable(send(&tenant(outbound, url), "/").await);
    assert_eq!((step, &why), (Step::Connect, &Why::Forbidden), "{url}");
    assert_eq!(why.to_string(), "it leads to an address that may not be reached");
}

#[tokio::test]
async fn no_spelling_of_an_inner_address_is_connected_to_for_a_tenant() {
    let (listener, address) = listen().await;
    let connections = watch(listener);
    let outbound = Outbound::new(settings()).unwrap();
    for (url, _) in SPELLINGS {
        is_forbidden(&outbound, url).await;
    }
    let port = address.port();
    for host in ["127.0.0.1", "127.0.0.1.", "2130706433", "127.1", "0", "[::ffff:127.0.0.1]"] {
        is_forbidden(&outbound, &format!("https://{host}:{port}/")).await;
    }
    for text in REFUSED {
        let address = SocketAddr::new(text.parse().unwrap(), port);
        is_forbidden(&outbound, &format!("https://{address}/")).await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_not_connected_to_and_the_error_hides_where_it_leads() {
    let (listener, address) = listen().await;
    let connections = watch(listener);
    let found: Vec<[&str; 1]> = REFUSED.iter().map(|text| [*text]).collect();
    let lookups: Vec<[&[&str]; 1]> = found.iter().map(|found| [&found[..]]).collect();
    let names: Vec<String> = (0..REFUSED.len()).map(|n| format!("inside{n}.example")).collect();
    let all: Vec<&str> = REFUSED[..64].to_vec();
    let all: [&[&str]; 1] = [&all];
    let mut known: Vec<(&str, &[&[&str]])> = vec![("inside.example", &all)];
    known.extend(names.iter().zip(&lookups).map(|(name, found)| (name.as_str(), &found[..])));
    let names = Names::of(&known);
    let outbound =
        Outbound::new(OutboundSettings { resolver: names.clone(), ..settings() }).unwrap();
    for (name, _) in &known {
        is_forbidden(&outbound, &format!("https://{name}:{}/", address.port())).await;
    }
    assert_eq!(names.lookups().len(), known.len());
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_names_of_this_machine_are_looked_up_and_not_connected_to() {
    let (listener, address) = listen().await;
    let connections = watch(listener);
    let resolver = Arc::new(SystemResolver);
    let outbound = Outbound::new(OutboundSettings { resolver, ..patient() }).unwrap();
    for host in ["localhost", "LOCALHOST", "localhost.", "ⓛocalhost", "local\u{ad}host"] {
        is_forbidden(&outbound, &format!("https://{host}:{}/", address.port())).await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_allowed_network_is_reached_and_a_redirect_is_not_followed() {
    let certificates = Certificates::of(&["hook.example"]);
    let server = certificates.serve("127.0.0.1:0", BOTH).await;
    // Addresses that may not be reached are passed over.
    let names = Names::of(&[("hook.example", &[&["10.0.0.1", "127.0.0.1", "::1"]])]);
    let outbound = Outbound::new(OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        resolver: names,
        ..allowing("127.0.0.1/32")
    })
    .unwrap();
    let url = format!("https://hook.example:{}/", server.address.port());
    let answer = answered(send(&tenant(&outbound, &url), "/hook?a=b").await);
    assert_eq!(answer.status, 307);
    assert!(answer.whole);
    let body = format!("HTTP/2.0 {}hook?a=b -", url);
    assert_eq!(answer.body, body.as_bytes());
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_tenants_server_without_tls_is_reached_over_http_1_in_a_network_allowed_for_it_alone() {
    let server = serve_plain("127.0.0.1:0").await;
    let names = Names::of(&[
        ("push.lan", &[&["8.8.8.8", "127.0.0.1"]]),
        ("push.example", &[&["8.8.8.8", "10.0.0.1"]]),
        ("inside.example", &[&["10.0.0.1"]]),
        ("forbidden.example", &[&["192.168.0.1"]]),
    ]);
    let settings = OutboundSettings { resolver: names, ..allowing("10.0.0.0/8,http:127.0.0.1") };
    let outbound = Outbound::new(settings).unwrap();
    let port = server.address.port();
    for host in ["127.0.0.1", "push.lan"] {
        let client = tenant(&outbound, &format!("http://{host}:{port}/"));
        let answer = answered(send(&client, "/up?a=b").await);
        assert_eq!(answer.body, format!("HTTP/1.1 /up?a=b {host}:{port}").as_bytes());
    }
    for (host, expected) in [
        ("push.example", Why::PlainForbidden),
        ("inside.example", Why::PlainForbidden),
        ("forbidden.example", Why::Forbidden),
    ] {
        let (step, why) =
            unreachable(send(&tenant(&outbound, &format!("http://{host}/")), "/").await);
        assert_eq!((step, why), (Step::Connect, expected), "{host}");
    }
}

#[tokio::test]
async fn a_name_is_resolved_once_for_a_connection_and_checked_again_for_the_next() {
    let certificates = Certificates::of(&["rebinds.example"]);
    let server = certificates.serve("127.0.0.2:0", BOTH).await;
    let inside = TcpListener::bind(("127.0.0.1", server.address.port())).await.unwrap();
    let inside = watch(inside);
    let names = Names::of(&[("rebinds.example", &[&["127.0.0.2"], &["127.0.0.1"]])]);
    let outbound = Outbound::new(OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        resolver: Arc::clone(&names) as _,
        ..allowing("127.0.0.2")
    })
    .unwrap();
    let client = tenant(&outbound, &format!("https://rebinds.example:{}", server.address.port()));
    assert_eq!(answered(send(&client, "/").await).status, 307);
    assert_eq!(answered(send(&client, "/").await).status, 307);
    assert_eq!(names.lookups().len(), 1);

    client.renew();
    let (step, why) = unreachable(send(&client, "/").await);
    assert_eq!((step, why), (Step::Connect, Why::Forbidden));
    assert_eq!((names.lookups().len(), server.accepted()), (2, 1));
    assert_eq!(inside.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_operators_own_server_needs_no_permission_and_lends_none_to_tenants() {
    let (listener, address) = listen().await;
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    let outbound = Outbound::new(settings()).unwrap();
    assert_eq!(answered(send(&plain(&outbound, address), "/").await).status, 200);

    let client = tenant(&outbound, &format!("https://{address}/"));
    assert_eq!(unreachable(send(&client, "/").await).1, Why::Forbidden);
}

#[tokio::test]
async fn a_server_must_prove_its_name_to_an_authority_that_is_trusted() {
    let certificates = Certificates::of(&["hook.example"]);
    let server = certificates.serve("127.0.0.1:0", BOTH).await;
    let names =
        Names::of(&[("hook.example", &[&["127.0.0.1"]]), ("other.example", &[&["127.0.0.1"]])]);
    let trusting = OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        resolver: Arc::clone(&names) as _,
        ..allowing("127.0.0.1")
    };
    let stranger = Certificates::of(&["hook.example"]);
    let distrusting =
        OutboundSettings { authorities: Some(stranger.authority.clone()), ..trusting.clone() };
    for (settings, name) in [(trusting, "other.example"), (distrusting, "hook.example")] {
        let outbound = Outbound::new(settings).unwrap();
        let client = tenant(&outbound, &format!("https://{name}:{}/", server.address.port()));
        let (step, why) = unreachable(send(&client, "/").await);
        assert!(matches!((step, &why), (Step::Tls, Why::Tls(_))), "{why:?}");
    }
}

#[tokio::test]
async fn a_file_of_authorities_that_cannot_be_used_is_named_at_the_start() {
    let settings = OutboundSettings { authorities: Some("/nowhere/ca.pem".into()), ..settings() };
    let error = Outbound::new(settings).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/ca.pem cannot be read");
}

#[tokio::test]
async fn operators_hosts_are_looked_up_although_tenants_lookups_hang() {
    let (listener, address) = listen().await;
    tokio::spawn(async move { Wire::accept(&listener, None).await.serve().await });
    let names = Names::of(&[("provider.example", &[&["127.0.0.1"]])]);
    let outbound = Outbound::new(OutboundSettings { resolver: names, ..settings() }).unwrap();
    let mut hanging = tokio::task::JoinSet::new();
    for n in 0..100 {
        let client = tenant(&outbound, &format!("https://hangs{n}.example/"));
        hanging.spawn(async move { unreachable(send(&client, "/").await) });
    }
    let url = format!("http://provider.example:{}", address.port());
    let origin = Origin::parse(&url, Owner::Operator).unwrap();
    let client = outbound.origin(origin, Default::default());
    assert_eq!(answered(send(&client, "/").await).status, 200);
    while let Some(ended) = hanging.join_next().await {
        let (step, why) = ended.unwrap();
        assert!(matches!((step, &why), (Step::Resolve, Why::Late(_))), "{why:?}");
    }
}

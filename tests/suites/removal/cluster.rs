//! Removed devices of a Redis Cluster, one of whose masters is away.

use std::{collections::HashSet, sync::Arc, time::Duration};

use push_broker::{DeviceAuthenticator as _, DeviceLogins};
use push_credentials::KeyFile;
use push_index::{Index, redis::RedisIndex};
use push_model::{
    app::AppKey,
    device::{DeviceDraft, TargetFields},
    ids::ClientId,
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_tests::{
    namespace,
    servers::{RedisCluster, redis_connection},
    stack::{APP, DEADLINE},
};
use tempfile::TempDir;
use tokio::time::Instant;

/// More than one request to each shard.
const DEVICES: usize = 600;
/// The search for removed devices begins every 3 s, and a removed device is to end within 5 s.
const SOON: Duration = Duration::from_secs(2);
/// The program may notice the failure of a server during the first search only, and find the devices of
/// the others in the second.
const NOTICED: Duration = Duration::from_secs(5);

type Registered = (ClientId, RegistrationEpoch);

async fn removed(logins: &DeviceLogins, app: &AppKey, sessions: &[Registered]) -> HashSet<usize> {
    let mut places = HashSet::new();
    let mut ended = |place| {
        places.insert(place);
    };
    logins.find_removed(app, sessions, &mut ended).await;
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_devices_of_other_masters_are_found_in_time_while_one_is_away() {
    let mut cluster = RedisCluster::start().await.unwrap();
    for node in cluster.nodes() {
        let client = redis::Client::open(node.url()).unwrap();
        let mut connection = redis_connection(&client).await.unwrap();
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("cluster-require-full-coverage").arg("no");
        set.query_async::<()>(&mut connection).await.unwrap();
    }
    let index = RedisIndex::connect(&cluster.url(), &namespace(), Default::default()).await;
    let index: Arc<dyn Index> = Arc::new(index.unwrap());
    let (app, now) = (AppKey::first(APP.parse().unwrap()), UnixMillis::now());
    let clients: Vec<ClientId> = (0..DEVICES).map(|n| format!("d{n}").parse().unwrap()).collect();
    let drafts = clients.iter().map(|client| DeviceDraft::default().check(client.clone()));
    let devices: Vec<_> = drafts.map(|checked| checked.unwrap().device).collect();
    index.put_devices(&app, &devices, now).await.unwrap();
    let found = index.targets(&app, &clients, TargetFields::Address).await.unwrap();
    let mut sessions: Vec<Registered> =
        found.into_iter().map(|at| at.unwrap()).map(|at| (at.client_id, at.epoch)).collect();
    // Every second one is removed. The last of the others has registered again since.
    for client in clients.iter().step_by(2) {
        assert!(index.remove_device(&app, client).await.unwrap());
    }
    sessions[DEVICES - 1].1 = RegistrationEpoch(1);
    let gone: HashSet<usize> = (0..DEVICES).step_by(2).chain([DEVICES - 1]).collect();

    let folder = TempDir::new().unwrap();
    let keys = KeyFile::open_or_create(&folder.path().join("keys.json"), now).unwrap();
    let logins = DeviceLogins::new(Arc::new(keys), index);
    assert_eq!(removed(&logins, &app, &sessions).await, gone);
    // All masters but one, whatever share of the devices each has.
    let of_others = gone.len() / 3..gone.len();
    for state in ["frozen", "killed"] {
        match state {
            "frozen" => cluster.nodes()[0].freeze().unwrap(),
            _ => cluster.nodes()[0].kill(),
        }
        let failed = Instant::now();
        let mut of_the_others: Option<HashSet<usize>> = None;
        for round in 0..4 {
            let begun = Instant::now();
            let mut found = removed(&logins, &app, &sessions).await;
            let took = begun.elapsed();
            let counts = format!("{state}, round {round}: {} of {}", found.len(), gone.len());
            assert!(found.is_subset(&gone) && took < SOON, "{counts} in {took:?}");
            if round == 0 && !of_others.contains(&found.len()) {
                found.extend(removed(&logins, &app, &sessions).await);
                assert!(failed.elapsed() < NOTICED, "{counts}, and the next after {NOTICED:?}");
            }
            assert!(of_others.contains(&found.len()), "{counts}, then {}", found.len());
            assert!(of_the_others.is_none_or(|others| others == found), "{counts}: not as before");
            of_the_others = Some(found);
        }
        if state == "frozen" {
            cluster.nodes()[0].thaw().unwrap();
            push_tests::eventually("all are found again", DEADLINE, async || {
                let found = removed(&logins, &app, &sessions).await;
                if found == gone { Ok(()) } else { Err(found.len().to_string()) }
            })
            .await;
        }
    }
}

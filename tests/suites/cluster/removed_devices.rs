//! Which removed devices the embedded broker finds while a master of the Redis Cluster is away.

use std::{collections::HashSet, sync::Arc, time::Duration};

use push_credentials::KeyFile;
use push_index::{Index, redis::RedisIndex};
use push_model::{
    app::AppKey, device::DeviceDraft, ids::ClientId, registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_tests::{eventually, namespace, servers::RedisCluster};
use pushctl::broker::{DeviceAuthenticator as _, DeviceLogins};

use crate::{APP, QUICK};

/// Fewer than the broker asks for together.
const DEVICES: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn removed_devices_of_other_masters_are_found_while_one_is_away() {
    let mut cluster = RedisCluster::start().await.unwrap();
    for node in cluster.nodes() {
        let client = redis::Client::open(node.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
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
    let found = index.targets(&app, &clients).await.unwrap();
    // Every second one is removed. The last of the others has registered again since.
    let mut sessions: Vec<(ClientId, RegistrationEpoch)> = found
        .into_iter()
        .map(|target| target.unwrap())
        .map(|at| (at.client_id, at.epoch))
        .collect();
    for client in clients.iter().step_by(2) {
        assert!(index.remove_device(&app, client).await.unwrap());
    }
    sessions[DEVICES - 1].1 = RegistrationEpoch(1);
    let gone: HashSet<_> = sessions.iter().step_by(2).chain(sessions.last()).cloned().collect();

    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("keys.json");
    let keys = KeyFile::open_or_create(&file, now).unwrap();
    let logins = DeviceLogins::new(Arc::new(keys), index.clone());
    assert_eq!(logins.removed(&app, sessions.clone()).await, gone);

    cluster.nodes()[0].kill();
    eventually("the index misses a master and answers for the others", QUICK, async || {
        let known = async |device: &(ClientId, RegistrationEpoch)| {
            let asked = std::slice::from_ref(&device.0);
            let asked = tokio::time::timeout(Duration::from_secs(30), index.targets(&app, asked));
            asked.await.is_ok_and(|found| found.is_ok())
        };
        let mut expected = HashSet::new();
        for device in &gone {
            if known(device).await {
                expected.insert(device.clone());
            }
        }
        let removed = logins.removed(&app, sessions.clone()).await;
        let is_some = !removed.is_empty() && removed.len() < gone.len();
        if removed == expected && is_some {
            Ok(())
        } else {
            Err(format!("{} of {} that are known", removed.len(), expected.len()))
        }
    })
    .await;
}

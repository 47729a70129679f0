//! Devices that another version of the program wrote: refused, never misread.

use push_index::{Apps, Devices, redis::RedisIndex};
use push_model::{
    app::{App, AppKey},
    device::TargetFields,
    secret::Secret,
    targeting::Targeting,
};
use push_store::IndexError;
use push_tests::{namespace, redis_url, servers::redis_connection};

use crate::index::support::{NOW, app, client, device, scan_all};

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T, IndexError>) {
    match answer {
        Err(IndexError::Refused(why)) if why.to_string().contains("another version") => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn devices_in_another_layout_are_refused_until_their_app_is_removed_and_comes_back() {
    let namespace = namespace();
    let index = RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
    let record = App::new(app(), &Secret::generate(), NOW);
    let one = || [device("c", &[("country", "CN")])];
    let server = redis::Client::open(redis_url()).unwrap();
    let mut connection = redis_connection(&server).await.unwrap();

    // A shard without a number, and one of a newer layout.
    for layout in [None, Some("2")] {
        assert!(index.create_app(&record).await.unwrap());
        let key = AppKey::from(&index.app(&app()).await.unwrap().unwrap());
        index.put_devices(&key, &one(), NOW).await.unwrap();
        assert!(index.device(&key, &client("c")).await.unwrap().is_some());

        let number = index.storage_order(&client("c")) >> 40;
        let shard = format!("{namespace}:{{{key}/{number}}}");
        let mut set = match layout {
            None => redis::cmd("HDEL"),
            Some(_) => redis::cmd("HSET"),
        };
        set.arg(&shard).arg("layout").arg(layout);
        assert_eq!(set.query_async::<u32>(&mut connection).await.unwrap(), layout.map_or(1, |_| 0));
        // An index with an empty cache. Slots in a cache need no check: they are of the same
        // layout, because another layout names its chunks differently.
        let index =
            RedisIndex::connect(&redis_url(), &namespace, Default::default()).await.unwrap();
        refused("registering", index.put_devices(&key, &one(), NOW).await);
        refused("finding", index.targets(&key, &[client("c")], TargetFields::Address).await);
        refused("reading", index.device(&key, &client("c")).await);
        refused("removing", index.remove_device(&key, &client("c")).await);
        refused("planning a broadcast", index.extent(&key).await);
        refused("counting", index.count_devices(&key).await);

        assert!(index.remove_app(&app()).await.unwrap());
        assert!(index.create_app(&record).await.unwrap());
        let key = AppKey::from(&index.app(&app()).await.unwrap().unwrap());
        index.put_devices(&key, &one(), NOW).await.unwrap();
        assert_eq!(scan_all(&index, &key, &Targeting::all_devices(), NOW, 10).await, ["c"]);
        assert!(index.remove_app(&app()).await.unwrap());
    }
}

//! The contents of the queue and the stores and the resources that they use, read at intervals.
//!
//! A scrape must be answered immediately, even while a store is frozen, so it never asks one: it gets what
//! was read last. A number that could not be read the last time has no value, because an old one would look
//! current.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use push_queue::{ConnectionCounts, DiskUse, Lane, Queue, QueueCounts, ReaderUse};
use push_store::{CacheUse, IndexError, StoreResources};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::engines::Stores;

/// The metrics of the queue and of the stores.
#[derive(Debug)]
pub struct StoreMetrics {
    queue: Arc<dyn Queue>,
    stores: Stores,
    /// None before the first reading.
    last: Mutex<Option<Reading>>,
}

/// One reading. A field is None if there was no answer.
#[derive(Debug)]
struct Reading {
    queue: Option<QueueCounts>,
    queue_disk: Option<DiskUse>,
    queue_readers: Option<ReaderUse>,
    connections: Option<ConnectionCounts>,
    stores: Option<StoresUse>,
}

/// The resources that index and ledger use.
#[derive(Debug, Default)]
struct StoresUse {
    /// Each server or file, with the name of its store.
    stores: Vec<(&'static str, StoreResources)>,
    caches: Vec<CacheUse>,
}

impl StoreMetrics {
    /// Adds the metrics to a registry. They have no values before
    /// [`keep_reading`](Self::keep_reading) has read them.
    pub fn register(registry: &mut Registry, queue: Arc<dyn Queue>, stores: Stores) -> Arc<Self> {
        let metrics = Arc::new(Self { queue, stores, last: Mutex::default() });
        registry.register_collector(Box::new(StoreCollector(Arc::clone(&metrics))));
        metrics
    }

    /// Reads immediately and then every `interval`, until `stop`.
    pub async fn keep_reading(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let reading = async {
            loop {
                let reading = self.read().await;
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
                tokio::time::sleep(interval).await;
            }
        };
        stop.run_until_cancelled(reading).await;
    }

    /// Returns the number of consumers that a lane had at the last reading, if it could be counted.
    pub fn consumers(&self, lane: Lane) -> Option<u64> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Some(last.as_ref()?.queue?.lane(lane).consumers)
    }

    async fn read(&self) -> Reading {
        let (queue, stores) = tokio::join!(self.queue.counts(), self.stores_use());
        // Only at this level: what works with the store logs that it is unavailable.
        if let Err(error) = &queue {
            debug!(error = error as &dyn std::error::Error, "the queue was not counted");
        }
        if let Err(error) = &stores {
            debug!(error = error as &dyn std::error::Error, "the index was not measured");
        }
        Reading {
            queue: queue.ok(),
            queue_disk: self.queue.disk_use(),
            queue_readers: self.queue.readers(),
            connections: self.queue.connections(),
            stores: stores.ok(),
        }
    }

    async fn stores_use(&self) -> Result<StoresUse, IndexError> {
        let index = self.stores.index.resources().await?;
        let mut stores: Vec<_> = index.stores.into_iter().map(|store| ("index", store)).collect();
        if let Some(ledger) = self.stores.separate_ledger() {
            let ledger = ledger.resources().await?;
            stores.extend(ledger.stores.into_iter().map(|store| ("ledger", store)));
        }
        Ok(StoresUse { stores, caches: index.caches })
    }
}

#[derive(Debug)]
struct StoreCollector(Arc<StoreMetrics>);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reading) = &*last else { return Ok(()) };
        let mut out = Readings(&mut encoder);
        let up = [("queue", reading.queue.is_some()), ("index", reading.stores.is_some())];
        let up = up.map(|(store, up)| ([("store", store)], u64::from(up)));
        out.write("push_store_up", "1 if the store answered when it was last asked", up)?;
        if let Some(counts) = &reading.queue {
            out.queue(counts)?;
        }
        if let Some(connections) = &reading.connections {
            out.connections(*connections)?;
        }
        let none = StoresUse::default();
        let StoresUse { stores, caches } = reading.stores.as_ref().unwrap_or(&none);
        out.memory(stores)?;
        out.disk(reading.queue_disk, stores)?;
        out.readers(reading.queue_readers, stores)?;
        out.caches(caches)
    }
}

/// Writes what was read.
struct Readings<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Readings<'_, '_> {
    /// Writes a gauge with a value for each set of labels; nothing if there is none.
    fn write<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn queue(&mut self, counts: &QueueCounts) -> fmt::Result {
        let of = |queue| [("queue", queue)];
        let ready = Lane::QUEUES.map(|lane| (of(lane.name()), counts.lane(lane).ready));
        let others = [(of("delayed"), counts.delayed), (of("dead"), counts.dead)];
        let help = "Messages that are ready";
        self.write("push_queue_messages", help, ready.into_iter().chain(others))?;
        let consumers = Lane::ALL.map(|lane| (of(lane.name()), counts.lane(lane).consumers));
        self.write("push_queue_consumers", "Consumers", consumers)?;
        let (name, help) = ("push_queue_oldest_seconds", "Age of the first message, at most");
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for lane in Lane::ALL {
            let oldest = counts.lane(lane).oldest.as_secs_f64();
            ConstGauge::new(oldest).encode(encoder.encode_family(&of(lane.name()))?)?;
        }
        Ok(())
    }

    fn connections(&mut self, connections: ConnectionCounts) -> fmt::Result {
        let ConnectionCounts { open, wanted } = connections;
        for (name, help, value) in [
            ("push_queue_connections", "Connections to the queue's server that are open", open),
            (
                "push_queue_connections_wanted",
                "Connections to the queue's server that should be open",
                wanted,
            ),
        ] {
            let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)?;
        }
        Ok(())
    }

    fn memory(&mut self, stores: &[(&'static str, StoreResources)]) -> fmt::Result {
        let of = |read: fn(&StoreResources) -> Option<u64>| {
            stores.iter().filter_map(move |(name, store)| {
                let labels = [("store", *name), ("node", &*store.node)];
                Some((labels, read(store)?))
            })
        };
        let name = "push_store_memory_bytes";
        self.write(name, "Memory that a store uses", of(|store| store.memory))?;
        let name = "push_store_memory_limit_bytes";
        self.write(name, "Memory that a store may use", of(|store| store.memory_limit))
    }

    fn disk(
        &mut self,
        queue: Option<DiskUse>,
        stores: &[(&'static str, StoreResources)],
    ) -> fmt::Result {
        let files = of_embedded(queue.map(|disk| disk.file), stores, |store| store.file);
        self.write("push_store_file_bytes", "Size of a store's file", files)?;
        let free = of_embedded(queue.map(|disk| disk.free), stores, |store| store.disk_free);
        self.write("push_store_disk_free_bytes", "Space left on the disk of a store's file", free)
    }

    fn readers(
        &mut self,
        queue: Option<ReaderUse>,
        stores: &[(&'static str, StoreResources)],
    ) -> fmt::Result {
        let shown = |readers: usize| u64::try_from(readers).unwrap_or(u64::MAX);
        let in_use = queue.map(|readers| shown(readers.in_use));
        let in_use = of_embedded(in_use, stores, |store| store.readers.map(|of| shown(of.in_use)));
        self.write("push_store_readers_in_use", "Reads of a store's file that run", in_use)?;
        let limit = queue.map(|readers| shown(readers.limit));
        let limit = of_embedded(limit, stores, |store| store.readers.map(|of| shown(of.limit)));
        self.write("push_store_readers_limit", "Reads of a store's file that may run", limit)
    }

    fn caches(&mut self, caches: &[CacheUse]) -> fmt::Result {
        let of = |read: fn(&CacheUse) -> u64| {
            caches.iter().map(move |cache| ([("cache", cache.cache)], read(cache)))
        };
        let entries = of(|cache| cache.entries);
        self.write("push_index_cache_entries", "Entries of a cache of the index", entries)?;
        let limit = of(|cache| cache.limit);
        self.write("push_index_cache_limit", "Entries that a cache of the index may have", limit)?;
        if caches.is_empty() {
            return Ok(());
        }
        let (name, help) = ("push_index_cache_lookups", "Lookups in a cache of the index");
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for cache in caches {
            for (result, lookups) in [("hit", cache.hits), ("miss", cache.misses)] {
                let labels = [("cache", cache.cache), ("result", result)];
                ConstCounter::new(lookups).encode(encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// A figure of the embedded queue, if there is one, and that of each store that has it.
fn of_embedded(
    queue: Option<u64>,
    stores: &[(&'static str, StoreResources)],
    read: impl Fn(&StoreResources) -> Option<u64>,
) -> impl Iterator<Item = ([(&'static str, &'static str); 1], u64)> {
    let queue = queue.map(|value| ([("store", "queue")], value));
    let stores =
        stores.iter().filter_map(move |(name, store)| Some(([("store", *name)], read(store)?)));
    queue.into_iter().chain(stores)
}

//! The metrics of the process: the resources that it uses, its threads, and its build. They are read
//! at each scrape, so they cost nothing in between.
//!
//! The names of `process_…` are those that all Prometheus clients use, so that dashboards know them.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::ConstCounter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::{Registry, Unit},
};
use tokio::runtime::Handle;

use crate::build_info;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    program: &'static str,
    version: &'static str,
    revision: &'static str,
    rustc: &'static str,
    target: &'static str,
}

/// Adds the metrics of the process and its build to those that the program publishes.
///
/// To be called on the runtime whose threads are meant; without one their metrics are left out.
pub fn register(registry: &mut Registry, program: &'static str) {
    let build = Build {
        program,
        version: build_info::NUMBER,
        revision: build_info::REVISION,
        rustc: build_info::RUSTC,
        target: build_info::TARGET,
    };
    let help = "The program, its version, the commit it was built from, and how";
    // A gauge, because what reads the older text format of Prometheus knows no metrics of the type info.
    let builds = Family::<Build, Gauge>::default();
    builds.get_or_create(&build).set(1);
    registry.register("push_build_info", help, builds);
    registry.register_collector(Box::new(Process { runtime: Handle::try_current().ok() }));
}

#[derive(Debug)]
struct Process {
    runtime: Option<Handle>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(usage) = Usage::read() {
            usage.encode(&mut encoder)?;
        }
        if let Some(runtime) = &self.runtime {
            encode_runtime(runtime, &mut encoder)?;
        }
        Ok(())
    }
}

/// The resources of the process, as the kernel reports them.
struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_files: Option<u64>,
    threads: i64,
    /// Since 1970.
    started_seconds: Option<f64>,
}

impl Usage {
    /// None where there is no `/proc`.
    #[cfg(target_os = "linux")]
    #[allow(
        clippy::cast_precision_loss,
        reason = "ticks of 10 ms since the start fit for 10^6 years"
    )]
    fn read() -> Option<Self> {
        use procfs::{
            CurrentSI as _, KernelStats, WithCurrentSystemInfo as _, process::Process,
            ticks_per_second,
        };
        let process = Process::myself().ok()?;
        let stat = process.stat().ok()?;
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second() as f64;
        let booted = KernelStats::current().ok().map(|kernel| kernel.btime as f64);
        Some(Self {
            cpu_seconds: seconds(stat.utime + stat.stime),
            resident_bytes: stat.rss_bytes().get(),
            virtual_bytes: stat.vsize,
            open_files: process.fd_count().ok().and_then(|count| u64::try_from(count).ok()),
            threads: stat.num_threads,
            started_seconds: booted.map(|booted| booted + seconds(stat.starttime)),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn read() -> Option<Self> {
        None
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Processor time that the process has used";
        let seconds = Some(Unit::Seconds);
        counter(encoder, "process_cpu", help, seconds.as_ref(), self.cpu_seconds)?;
        let bytes = Some(Unit::Bytes);
        let help = "Memory of the process that is resident";
        gauge(encoder, "process_resident_memory", help, bytes.as_ref(), self.resident_bytes)?;
        let help = "Address space of the process";
        gauge(encoder, "process_virtual_memory", help, bytes.as_ref(), self.virtual_bytes)?;
        if let Some(open) = self.open_files {
            gauge(encoder, "process_open_fds", "Open file descriptors", None, open)?;
        }
        if let Ok(most) = rlimit::Resource::NOFILE.get_soft() {
            gauge(encoder, "process_max_fds", "File descriptors that may be open", None, most)?;
        }
        gauge(encoder, "process_threads", "Threads of the process", None, self.threads)?;
        if let Some(started) = self.started_seconds {
            let help = "When the process was started, since 1970";
            gauge(encoder, "process_start_time", help, seconds.as_ref(), started)?;
        }
        Ok(())
    }
}

/// Writes the metrics of tokio that are stable.
fn encode_runtime(runtime: &Handle, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let metrics = runtime.metrics();
    let shown = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let help = "Threads that run tasks";
    gauge(encoder, "tokio_workers", help, None, shown(metrics.num_workers()))?;
    let help = "Tasks that are not done";
    gauge(encoder, "tokio_alive_tasks", help, None, shown(metrics.num_alive_tasks()))?;
    let help = "Tasks that can go on and wait for a thread, in the queue that all threads share";
    gauge(encoder, "tokio_global_queue_tasks", help, None, shown(metrics.global_queue_depth()))?;
    let busy: f64 = (0..metrics.num_workers())
        .map(|worker| metrics.worker_total_busy_duration(worker).as_secs_f64())
        .sum();
    let help = "Time in which threads ran tasks, of all together";
    counter(encoder, "tokio_busy", help, Some(&Unit::Seconds), busy)
}

fn gauge<N>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: N,
) -> fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    let encoder = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    ConstGauge::new(value).encode(encoder)
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: f64,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
    ConstCounter::new(value).encode(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_publishes_what_it_takes_and_which_build_it_is() {
        let mut registry = Registry::default();
        register(&mut registry, "ingest");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse::<f64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!((3.0..value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_threads") >= 1.0 && value("tokio_workers") >= 1.0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age}");
        let build = [
            ("program", "ingest"),
            ("version", build_info::NUMBER),
            ("revision", build_info::REVISION),
            ("rustc", build_info::RUSTC),
            ("target", build_info::TARGET),
        ];
        let labels = build.map(|(label, value)| format!(r#"{label}="{value}""#)).join(",");
        assert!(text.contains(&format!("push_build_info{{{labels}}} 1")), "{text}");
    }
}

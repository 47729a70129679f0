//! Pushes a second over many connections, each confirmed by a durable quorum queue, as a share of
//! the requests of a bare server; and the same without a broker that takes processor time.

use std::time::Duration;

use crate::{
    ceiling::{ingest_alone, peer_server::PeerServer, raw_publisher::confirm_time},
    load::pushes::ordinary_push,
    measure::{
        cpu_time::CpuMeter,
        stats::{Rounds, median},
    },
    report::{Figure, Row, Target},
    setup::{Environment, environment::purge_jobs, population},
};

/// Load before the first round: connections, allocator and broker warm up.
const WARM_UP: Duration = Duration::from_secs(1);
/// Connections, and the target of the ratio.
const LOADS: [(usize, f64); 2] = [(256, 0.55), (64, 0.33)];

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let service = env.empty_app().await?;
    let producer = service.producer();
    let bare = PeerServer::start(&producer, |address| vec!["--bare-server".into(), address.into()])
        .await?;

    let amqp = env.amqp_url().await?;
    let body = ordinary_push(&population::client_id(1));
    let mut rows = Vec::new();
    for (connections, target) in LOADS {
        let confirm = confirm_time(&amqp, connections / 2).await?;
        let (redis, namespace) = (service.redis.url(), &service.stack.namespace);
        let alone = PeerServer::start(&producer, |address| {
            ingest_alone::flags(address, &redis, namespace, confirm)
        })
        .await?;
        for loaded in [&producer, &bare.producer, &alone.producer] {
            loaded.wrk(connections, WARM_UP, &body).await?;
        }
        let [mut rounds, mut rounds_alone] = [Rounds::default(), Rounds::default()];
        // Processor time of `ingest`, the bare server and RabbitMQ for each request.
        let [mut ours, mut theirs, mut brokers] = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..env.sizes.rounds {
            let load = env.sizes.load;
            let cpu = CpuMeter::start([service.stack.ingest().id(), env.rabbitmq_pid().await?]);
            let figure = producer.wrk(connections, load, &body).await?;
            if let Some([ingest, broker]) = cpu.per_request(figure * load.as_secs_f64()) {
                ours.push(ingest);
                brokers.push(broker);
            }
            purge_jobs(&amqp, &service.stack).await?;
            let cpu = CpuMeter::start([bare.process.id()]);
            let ceiling = bare.producer.wrk(connections, load, &body).await?;
            theirs.extend(cpu.per_request(ceiling * load.as_secs_f64()).into_iter().flatten());
            rounds.add(figure, ceiling);
            rounds_alone.add(alone.producer.wrk(connections, load, &body).await?, ceiling);
        }
        rows.push(Row {
            what: format!("ingest, {connections} connections"),
            target: Target::RatioAtLeast(target),
            how: format!(
                "wrk, keep-alive, {} x {:?} each in turn; every 200 after the confirm of a \
                 durable quorum queue. Ceiling: a bare hyper server that parses the same JSON \
                 and answers as many bytes",
                env.sizes.rounds, env.sizes.load
            ),
            ..rounds.row("pushes/s", "requests/s")
        });
        rows.push(Row {
            what: format!("ingest, {connections} connections, no broker beside it"),
            how: format!(
                "ingest with a queue that takes no processor time and confirms after {confirm:.2?}, \
                 as RabbitMQ does for a message of {} pushes when nothing else runs",
                connections / 2
            ),
            ..rounds_alone.row("pushes/s", "requests/s")
        });
        if ours.is_empty() {
            continue;
        }
        let (ours, theirs) = (median(ours), median(theirs));
        rows.push(Row {
            what: format!("ingest, {connections} connections, processor time"),
            figure: Figure::new(ours, "us/push"),
            ceiling: Some(Figure::new(theirs, "us/request")),
            ratio: Some(ours / theirs),
            target: Target::None,
            how: format!(
                "of the process, user and system; as for the bare server. RabbitMQ takes another \
                 {:.1} us a push. Other programs on the machine disturb this least",
                median(brokers)
            ),
        });
    }
    Ok(rows)
}

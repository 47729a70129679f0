//! Pushes a second over many connections, each confirmed by a durable quorum queue, as a share of
//! what a bare server does; and the same without the broker's share of the machine.

use std::time::Duration;

use lapin::{Connection, ConnectionProperties, options::QueuePurgeOptions};
use push_tests::{
    free_port,
    process::{Output, Process},
    stack::Stack,
};
use tokio::net::TcpStream;

use crate::{
    crowd, ingest_alone, latency,
    load::{Producer, Rounds, median, ordinary_push},
    processor::Spent,
    report::{Figure, Row, Target},
    world::World,
};

/// A server beside `ingest` has this long to listen.
const START: Duration = Duration::from_secs(30);
/// Load before the first round: connections, allocator and broker warm up.
const WARM_UP: Duration = Duration::from_secs(1);
/// Connections, and the share that is wanted.
const LOADS: [(usize, f64); 2] = [(256, 0.75), (64, 0.50)];

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let service = world.empty().await?;
    let producer = service.producer();
    let bare =
        Beside::start(&producer, |address| vec!["--bare-server".into(), address.into()]).await?;

    let amqp = world.amqp().await?;
    let body = ordinary_push(&crowd::client_id(1));
    let mut rows = Vec::new();
    for (connections, target) in LOADS {
        let confirm = latency::confirm(&amqp, connections / 2).await?;
        let (redis, namespace) = (service.redis.url(), &service.stack.namespace);
        let alone = Beside::start(&producer, |address| {
            ingest_alone::flags(address, &redis, namespace, confirm)
        })
        .await?;
        for one in [&producer, &bare.producer, &alone.producer] {
            one.wrk(connections, WARM_UP, &body).await?;
        }
        let [mut rounds, mut rounds_alone] = [Rounds::default(), Rounds::default()];
        // Of `ingest`, the bare server and RabbitMQ, for each request.
        let [mut ours, mut theirs, mut brokers] = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..world.sizes.rounds {
            let load = world.sizes.load;
            let spent = Spent::by([service.stack.ingest().id(), world.rabbitmq().await?]);
            let figure = producer.wrk(connections, load, &body).await?;
            if let Some([ingest, broker]) = spent.per(figure * load.as_secs_f64()) {
                ours.push(ingest);
                brokers.push(broker);
            }
            forget_jobs(&amqp, &service.stack).await?;
            let spent = Spent::by([bare.process.id()]);
            let ceiling = bare.producer.wrk(connections, load, &body).await?;
            theirs.extend(spent.per(ceiling * load.as_secs_f64()).into_iter().flatten());
            rounds.add(figure, ceiling);
            rounds_alone.add(alone.producer.wrk(connections, load, &body).await?, ceiling);
        }
        let (figure, ceiling, ratio) = rounds.medians();
        rows.push(Row {
            what: format!("ingest, {connections} connections"),
            figure: Figure::new(figure, "pushes/s"),
            ceiling: Some(Figure::new(ceiling, "requests/s")),
            ratio: Some(ratio),
            target: Target::RatioAtLeast(target),
            how: format!(
                "wrk, keep-alive, {} x {:?} each in turn; every 200 after the confirm of a \
                 durable quorum queue. Ceiling: a bare hyper server that parses the same JSON \
                 and answers as many bytes",
                world.sizes.rounds, world.sizes.load
            ),
        });
        let (figure, ceiling, ratio) = rounds_alone.medians();
        rows.push(Row {
            what: format!("ingest, {connections} connections, no broker beside it"),
            figure: Figure::new(figure, "pushes/s"),
            ceiling: Some(Figure::new(ceiling, "requests/s")),
            ratio: Some(ratio),
            target: Target::None,
            how: format!(
                "ingest with a queue that takes no processor time and confirms after {confirm:.2?}, \
                 as RabbitMQ does for a message of {} pushes when nothing else runs",
                connections / 2
            ),
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

/// Another server to put the same load on: this program, told to be it.
struct Beside {
    process: Process,
    producer: Producer,
}

impl Beside {
    async fn start(like: &Producer, flags: impl Fn(&str) -> Vec<String>) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(flags(&port.address()));
        let process = Process::spawn(&command, Output::Inherited, None)?;
        push_tests::eventually("the server beside listens", START, async || {
            TcpStream::connect(port.address()).await.map_err(|error| error.to_string())
        })
        .await;
        Ok(Self { process, producer: Producer { address: port.address(), ..like.clone() } })
    }
}

/// Empties the queue that nobody consumes here.
pub(crate) async fn forget_jobs(amqp: &str, stack: &Stack) -> anyhow::Result<()> {
    let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let queue = format!("{}.jobs", stack.namespace);
    channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await?;
    connection.close(200, "done".into()).await?;
    Ok(())
}

//! Pushes a second over many connections, each confirmed by a durable quorum queue, as a share of
//! what a bare server does.

use std::time::Duration;

use lapin::{Connection, ConnectionProperties, options::QueuePurgeOptions};
use push_tests::{
    free_port,
    process::{Output, Process},
    stack::Stack,
};
use tokio::net::TcpStream;

use crate::{
    crowd,
    load::{Producer, Rounds, median, ordinary_push},
    report::{Figure, Row, Target},
    world::{World, cpu_time},
};

/// The bare server has this long to listen.
const START: Duration = Duration::from_secs(30);
/// Load before the first round: connections, allocator and broker warm up.
const WARM_UP: Duration = Duration::from_secs(1);
/// Connections, and the share that is wanted.
const LOADS: [(usize, f64); 2] = [(256, 0.75), (64, 0.50)];

pub(crate) async fn run(world: &World) -> anyhow::Result<Vec<Row>> {
    let service = world.empty().await?;
    let producer = service.producer();
    let port = free_port()?;
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(["--bare-server", &port.address()]);
    let bare_process = Process::spawn(&command, Output::Inherited, None)?;
    let bare = Producer { address: port.address(), ..producer.clone() };
    push_tests::eventually("the bare server listens", START, async || {
        TcpStream::connect(port.address()).await.map_err(|error| error.to_string())
    })
    .await;

    let amqp = world.amqp().await?;
    let body = ordinary_push(&crowd::client_id(1));
    let mut rows = Vec::new();
    for (connections, target) in LOADS {
        for one in [&producer, &bare] {
            one.wrk(connections, WARM_UP, &body).await?;
        }
        let mut rounds = Rounds::default();
        // Of `ingest`, the bare server and RabbitMQ, for each request.
        let [mut ours, mut theirs, mut brokers] = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..world.sizes.rounds {
            let load = world.sizes.load;
            let (broker, ingest) =
                (Spent::by(world.rabbitmq().await?), Spent::by(service.stack.ingest().id()));
            let figure = producer.wrk(connections, load, &body).await?;
            ours.extend(ingest.per_request(figure, load));
            brokers.extend(broker.per_request(figure, load));
            forget_jobs(&amqp, &service.stack).await?;
            let server = Spent::by(bare_process.id());
            let ceiling = bare.wrk(connections, load, &body).await?;
            theirs.extend(server.per_request(ceiling, load));
            rounds.add(figure, ceiling);
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

/// Empties the queue that nobody consumes here.
pub(crate) async fn forget_jobs(amqp: &str, stack: &Stack) -> anyhow::Result<()> {
    let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let queue = format!("{}.jobs", stack.namespace);
    channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await?;
    connection.close(200, "done".into()).await?;
    Ok(())
}

/// Processor time of a process since some moment.
struct Spent {
    process: u32,
    before: Option<f64>,
}

impl Spent {
    fn by(process: u32) -> Self {
        Self { process, before: cpu_time(process) }
    }

    /// Microseconds for each request at this rate; none where the system does not tell.
    fn per_request(self, rate: f64, time: Duration) -> Option<f64> {
        let spent = cpu_time(self.process)? - self.before?;
        Some(spent * 1e6 / (rate * time.as_secs_f64()))
    }
}

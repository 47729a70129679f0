//! RMQTT on one port, with the plugins whose configuration is in a folder:
//! `rmqtt-with-plugins PORT FOLDER PLUGIN...`

use std::{env, net::Ipv4Addr};

use anyhow::{Context as _, bail};
use rmqtt::{context::ServerContext, net::Builder, server::MqttServer};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let port: u16 = arguments.next().context("PORT")?.parse()?;
    let folder = arguments.next().context("FOLDER")?;
    let context = ServerContext::new().plugins_config_dir(folder).build().await;
    for plugin in arguments {
        match plugin.as_str() {
            "rmqtt-acl" => rmqtt_acl::register(&context, true, false).await?,
            "rmqtt-auth-http" => rmqtt_auth_http::register(&context, true, false).await?,
            "rmqtt-auth-jwt" => rmqtt_auth_jwt::register(&context, true, false).await?,
            other => bail!("no plugin {other}"),
        }
    }
    let listener = Builder::new()
        .name("tcp")
        .laddr((Ipv4Addr::LOCALHOST, port).into())
        .allow_anonymous(false)
        .bind()?
        .tcp()?;
    MqttServer::new(context).listener(listener).build().run().await?;
    Ok(())
}

//! A server instance: a server on its own network.

use std::{net::IpAddr, rc::Rc};

use anyhow::{Context, Result};

use bpfcost_model::Case;
use bpfcost_process::RunContext;
use bpfcost_workload::{
    Client, Definition, LoadClient, LoadResult, Network, Path, Server, UsageReader,
    outside::{LoadOrder, Outside},
};

/// A server and the network on which clients reach it.
pub(super) struct ServerInstance {
    // Ends before its network does.
    server: Option<Server>,
    /// Reads what is spent on a server that was not started here.
    watched: Option<UsageReader<'static>>,
    pub(super) network: Network,
    context: RunContext,
    /// Who makes its load, where that comes from outside of this machine.
    outside: Option<Rc<dyn Outside>>,
}

impl ServerInstance {
    /// Makes that network, and starts the server on it.
    pub(super) fn open(
        definition: &Definition,
        context: &RunContext,
        name: &str,
        outside: Option<&Rc<dyn Outside>>,
    ) -> Result<Self> {
        let path: Path = name.parse()?;
        let network = Network::open(path, &context.server_cpus)?;
        let context = RunContext {
            address: network.address(),
            ..context.clone()
        };
        let server = match &definition.server {
            Some(spec) if !spec.command.is_empty() => {
                Some(network.at_server(|| Server::start(spec, &context))??)
            }
            _ => None,
        };
        Ok(ServerInstance {
            server,
            watched: None,
            network,
            context,
            outside: outside.filter(|_| path == Path::Forwarded).cloned(),
        })
    }

    /// Waits until the server can take the load of another window.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.server.as_mut().map_or(Ok(()), Server::ready)
    }

    /// The server, if there is one, and where it is reached.
    pub(super) fn parts(&mut self) -> (Option<&mut Server>, &Network) {
        (self.server.as_mut(), &self.network)
    }

    /// The address on which others reach the server too, which is meant for this machine's clients alone.
    pub(super) fn exposed(&self) -> Option<IpAddr> {
        let is_local = self.context.address.is_loopback() && !self.is_outside();
        let address = self.server.as_ref()?.address()?;
        (is_local && !address.to_canonical().is_loopback()).then_some(address)
    }

    /// Returns whether the load comes from outside of this machine.
    pub(super) fn is_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// Makes the load of one window, where clients are.
    pub(super) fn load(&self, client: &Client, context: &RunContext) -> Result<LoadResult> {
        match &self.outside {
            Some(outside) => outside
                .load(&order(context, false), client.limit(context.window_ms))?
                .context("the load from outside has no description"),
            None => self
                .network
                .at_client(|| LoadClient::new(client).run(context))?,
        }
    }

    /// Warms what the load needs.
    pub(super) fn warm_up(&self, client: &Client, context: &RunContext) -> Result<()> {
        match &self.outside {
            Some(outside) => outside
                .load(
                    &order(context, true),
                    client.warm_up_limit(context.window_ms),
                )
                .map(drop),
            None => self
                .network
                .at_client(|| LoadClient::new(client).warm_up(context))?,
        }
    }

    /// The outcome of something, unless the server is gone: then that is why.
    pub(super) fn answer<T, E: From<anyhow::Error>>(
        &mut self,
        outcome: Result<T, E>,
    ) -> Result<T, E> {
        match self.server.as_mut().map(Server::alive) {
            Some(Err(gone)) => Err(anyhow::Error::from(gone).into()),
            _ => outcome,
        }
    }

    /// Returns the reader of the resources spent on the server.
    pub(super) fn accounts(&self) -> UsageReader<'_> {
        match &self.watched {
            Some(watched) => watched.clone(),
            None => UsageReader::new(self.server.as_ref()),
        }
    }

    /// Sets the reader of the resources spent on a service that was not started here.
    pub(super) fn watch(&mut self, accounts: &UsageReader<'static>) {
        self.watched = Some(accounts.clone());
    }

    /// The context of one case, for a window of so many milliseconds.
    pub(super) fn context(&self, case: &Case, window_ms: u64) -> RunContext {
        RunContext {
            pids: self.server.as_ref().map(Server::pids).unwrap_or_default(),
            window_ms,
            factors: case.factors.clone(),
            ..self.context.clone()
        }
    }
}

/// The order for load from outside.
fn order(context: &RunContext, warm_up: bool) -> LoadOrder {
    LoadOrder {
        factors: context.factors.clone(),
        window_ms: context.window_ms,
        warm_up,
    }
}

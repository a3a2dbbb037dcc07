//! A network, and the server that runs on it.

use anyhow::Result;

use crate::{
    experiment::Case,
    workload::{Accounts, Definition, Network, Scene, Server},
};

/// A server where it is reached.
pub(super) struct Site {
    // Ends before its network does.
    server: Option<Server>,
    pub(super) network: Network,
    scene: Scene,
}

impl Site {
    /// The name of the network that a case wants.
    pub(super) fn name(definition: &Definition, scene: &Scene, case: &Case) -> Result<String> {
        let scene = Scene {
            factors: case.factors.clone(),
            ..scene.clone()
        };
        scene.fill(&definition.network)
    }

    /// Makes that network, and starts the server on it.
    pub(super) fn open(definition: &Definition, scene: &Scene, name: &str) -> Result<Self> {
        let network = Network::open(name.parse()?, &scene.server_cpus)?;
        let scene = Scene {
            address: network.address(),
            ..scene.clone()
        };
        let server = match &definition.server {
            Some(spec) if !spec.command.is_empty() => {
                Some(network.at_server(|| Server::start(spec, &scene))??)
            }
            _ => None,
        };
        Ok(Site {
            server,
            network,
            scene,
        })
    }

    /// Waits until the server can take the load of another window.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.server.as_mut().map_or(Ok(()), Server::ready)
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

    /// What is spent on it.
    pub(super) fn accounts(&self) -> Accounts<'_> {
        Accounts::of(self.server.as_ref())
    }

    /// The scene of one case, for a window of so many milliseconds.
    pub(super) fn scene(&self, case: &Case, window_ms: u64) -> Scene {
        Scene {
            pids: self.server.as_ref().map(Server::pids).unwrap_or_default(),
            window_ms,
            factors: case.factors.clone(),
            ..self.scene.clone()
        }
    }
}

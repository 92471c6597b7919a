//! The check before a command runs: has somebody logged in, and may he?

use std::any::Any;
use std::sync::{Arc, OnceLock};

use kilim_auth::{Action, ActionSet, Privilege, Resource, Rights};
use kilim_bson::{Document, RawDocument};
use kilim_engine::Engine;
use kilim_engine::operation::{Operation, User};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::text;

use super::demands::{Claim, Demands};
use super::{Identity, redacted};
use crate::client::Client;
use crate::dispatch::{Call, shown};
use crate::privilege::Needs;
use crate::registry::CommandSpec;
use crate::request::Request;

/// Looks who the client is now, and refuses commands that need a login to those without one.
pub(crate) fn admit(
    client: &mut Client,
    engine: &Engine,
    operation: &Arc<Operation>,
    spec: &CommandSpec,
) -> Result<()> {
    if let Some(identity) = &client.login.identity {
        if !identity.is_current(&client.access) {
            let addresses = (client.peer.ip(), client.local.ip());
            let renewed = Identity::load(engine, &client.access, operation, &identity.name, addresses)?;
            client.login.identity = renewed.filter(|renewed| renewed.is_same(identity)).map(Arc::new);
        }
        if let Some(identity) = &client.login.identity {
            operation.set_user(identity.user.clone());
        }
    }
    let is_open = !client.access.is_enforced()
        || matches!(spec.needs, Needs::Nothing)
        || client.login.identity.is_some()
        || client.access.excepts(engine, client.peer.ip())?;
    match is_open {
        true => Ok(()),
        false => Err(Error::user(
            ErrorCode::Unauthorized,
            format!("command {} requires authentication", spec.name),
        )),
    }
}

/// Refuses a command to those who lack a privilege that it needs.
pub(crate) fn authorize(
    client: &Client,
    engine: &Engine,
    spec: &CommandSpec,
    database: &str,
    request: &Request<'_>,
) -> Result<()> {
    if !client.access.is_enforced() {
        return Ok(());
    }
    let mut demands =
        Demands::new(engine, request, database, rights(client), client.login.identity.as_deref());
    demands.ask(spec)?;
    match demands.is_refused() {
        false => Ok(()),
        true => Err(unauthorized(spec, database, request.body)),
    }
}

/// What a command needed, to be asked for again when its cursor is read on.
pub(crate) fn claims_of(call: &Call<'_, '_>) -> Option<Arc<dyn Any + Send + Sync>> {
    if !call.client.access.is_enforced() {
        return None;
    }
    let mut demands = Demands::collecting(call.engine, call.request, call.generic.database);
    // It was asked before and gave no error.
    demands.ask(call.spec).ok()?;
    Some(Arc::new(demands.into_claims()))
}

/// Refuses a cursor to those who did not open it, or have lost what that took.
pub(crate) fn check_cursor(
    call: &Call<'_, '_>,
    user: Option<&Arc<User>>,
    claims: Option<&Arc<dyn Any + Send + Sync>>,
    id: i64,
) -> Result<()> {
    if !call.client.access.is_enforced() {
        return Ok(());
    }
    if !is_own(call, user) {
        return Err(Error::user(
            ErrorCode::Unauthorized,
            format!("cursor id {id} was not created by the authenticated user"),
        ));
    }
    let claims = claims.and_then(|claims| claims.downcast_ref::<Vec<Claim>>());
    let rights = rights(call.client);
    match claims.into_iter().flatten().all(|claim| claim.holds(rights)) {
        true => Ok(()),
        false => Err(unauthorized(call.spec, call.generic.database, call.body)),
    }
}

/// Whether something belongs to the user who runs the command. Where access is not enforced, everything does.
pub(crate) fn is_own(call: &Call<'_, '_>, user: Option<&Arc<User>>) -> bool {
    !call.client.access.is_enforced()
        || call.client.login.identity.as_ref().map(|identity| &*identity.user) == user.map(|user| &**user)
}

/// Whether users or roles have changed since the command began: the client may have lost the right to run it.
pub(crate) fn is_outdated(client: &Client) -> bool {
    client.login.identity.as_ref().is_some_and(|identity| !identity.is_current(&client.access))
}

pub(crate) fn may_on_cluster(client: &Client, action: Action) -> bool {
    !client.access.is_enforced() || rights(client).allows_on_cluster(action)
}

/// What the client may do; what the localhost exception allows, if nobody has logged in. [`admit`] has seen that it holds.
pub(crate) fn rights(client: &Client) -> &Rights {
    static EXCEPTED: OnceLock<Rights> = OnceLock::new();
    match &client.login.identity {
        Some(identity) => &identity.rights,
        None => EXCEPTED.get_or_init(|| {
            let grant = |resource: Resource, actions: &[&'static str]| Privilege {
                resource,
                actions: actions.iter().map(|name| Action::named(name)).collect::<ActionSet>(),
            };
            Rights::new(&[
                grant(Resource::Database("admin".to_owned()), &["createUser", "grantRole"]),
                grant(Resource::Database("$external".to_owned()), &["createUser"]),
                grant(Resource::Cluster, &["addShard", "replSetConfigure"]),
            ])
        }),
    }
}

/// The refusal, in mongod's words.
pub(crate) fn unauthorized(spec: &CommandSpec, database: &str, body: RawDocument<'_>) -> Error {
    let command: Document = redacted(spec, body).unwrap_or_else(|| shown(body));
    let command = text::document(command.as_raw());
    Error::user(ErrorCode::Unauthorized, format!("not authorized on {database} to execute command {command}"))
}

//! Who a connection is: the user who logged in, and what his roles allow at present.

use std::net::IpAddr;
use std::sync::Arc;

use kilim_auth::{Gathered, Mechanism, Rights, RoleName, ServerExchange, UserDocument, UserName};
use kilim_bson::{Value, doc};
use kilim_engine::Engine;
use kilim_engine::operation::{Operation, User};
use kilim_error::Result;

use super::{Access, store};

/// What a connection has of a login.
#[derive(Default)]
pub(crate) struct Login {
    pub(crate) identity: Option<Arc<Identity>>,
    /// A login that has begun.
    pub(crate) conversation: Option<Conversation>,
    /// The subject of the client's certificate, if the connection was made with one that was verified.
    pub(crate) subject: Option<String>,
}

/// A login that has begun and is not proven yet.
pub(crate) struct Conversation {
    pub(crate) id: i32,
    pub(crate) user: UserName,
    pub(crate) mechanism: Mechanism,
    pub(crate) exchange: ServerExchange,
    /// Whether the client wants to be done after the proof, without a further empty message.
    pub(crate) skips_empty: bool,
    /// Set once the client has proven who he is.
    pub(crate) proven: bool,
}

/// A user who has logged in.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: UserName,
    pub(crate) user: Arc<User>,
    id: [u8; 16],
    pub(crate) gathered: Gathered,
    /// The roles as `$$USER_ROLES` has them.
    pub(crate) shown_roles: Arc<Value>,
    pub(crate) rights: Rights,
    /// As of which change of users and roles this is true.
    generation: u64,
}

impl Identity {
    /// A user as he is now; `None` if there is none, or he may not log in from there.
    pub(crate) fn load(
        engine: &Engine,
        access: &Access,
        operation: &Arc<Operation>,
        name: &UserName,
        (client, server): (IpAddr, IpAddr),
    ) -> Result<Option<Identity>> {
        // Before the look at the store: a change behind it is seen at the next command.
        let generation = access.generation();
        let Some(user) = store::user(engine, operation, name)? else { return Ok(None) };
        let UserDocument { name, id, roles, restrictions, .. } = user;
        let gathered = store::gathered(engine, operation, &roles)?;
        let lists = std::iter::once(&restrictions).chain(&gathered.restrictions);
        let allowed = |list: &Vec<_>| {
            list.is_empty() || list.iter().any(|one: &kilim_auth::Restriction| one.allows(client, server))
        };
        if !lists.into_iter().all(allowed) {
            return Ok(None);
        }
        let rights = Rights::new(&gathered.privileges);
        let user = Arc::new(User { name: name.user.clone(), db: name.db.clone() });
        let shown = |role: &RoleName| {
            let id = format!("{}.{}", role.db, role.role);
            Value::Document(doc! {"_id": id, "role": &role.role, "db": &role.db})
        };
        let shown_roles = Arc::new(Value::Array(gathered.roles.iter().map(shown).collect()));
        Ok(Some(Identity { name, user, id, gathered, shown_roles, rights, generation }))
    }

    pub(crate) fn is_current(&self, access: &Access) -> bool {
        self.generation == access.generation()
    }

    /// Whether it is the same user, and not a later one of the same name.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self.name == other.name && self.id == other.id
    }
}

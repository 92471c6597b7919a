//! Who somebody is, and what he may do: SCRAM, credentials, roles, privileges. Pure: no storage, no sockets, no clock.
//!
//! Users and roles are documents of MongoDB's form ([`UserDocument`], [`RoleDocument`]). [`Rights`] is what becomes of a
//! user's roles: it answers whether an action on a resource is allowed.

mod action;
mod builtin;
mod credential;
mod documents;
mod name;
mod privilege;
mod restriction;
mod rights;
mod scram;

pub use action::{ACTIONS, Action, ActionSet, OWN_ACTIONS};
pub use builtin::{builtin, builtin_names};
pub use credential::{Credential, Mechanism, digest};
pub use documents::{Credentials, RoleDocument, UserDocument};
pub use name::{RoleName, UserName};
pub use privilege::{Privilege, Resource, merge};
pub use restriction::Restriction;
pub use rights::{Gathered, Rights, gather};
pub use scram::{ClientExchange, ClientFirst, ServerExchange};

//! The admin API: what each role may do, what is recorded, lists, and bounds. It runs as a program of its own on
//! RabbitMQ and Redis, and as a part of the standalone form.

mod app_page;
mod attributes;
mod bounds;
mod changes;
mod description;
mod lists;
mod names;
mod other_apps;
mod pages;
mod rights;
mod support;
mod trying;
mod visitor;

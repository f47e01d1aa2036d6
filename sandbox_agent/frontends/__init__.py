"""What people and programs see of a run. Front ends consume events and nothing else; the engine never calls them."""

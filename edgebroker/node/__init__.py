"""The broker itself: who subscribes to what, who gets a publication, and what became of each copy. It knows no MQTT."""

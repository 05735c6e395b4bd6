"""Every block's way through one broker: sessions, subscriptions, requests, credit and queues. Pure."""

"""The broker without its protocol: subscriptions, the routes of publications, and the fate of each copy. It knows no
MQTT.
"""

"""The web console: pages for people, made from the contract and the manifests of the apps. It calls the platform by the
SDK, with the token of the person who signed in."""
